package vgpu

import "fmt"

// Drain says that a device is to take nobody any more. All who are bound there
// or keep bytes there are told to leave.
type Drain struct {
	Device DeviceID `json:"device"`
}

func (e Drain) apply(c *Core) bool { return false }

// Resume says that a device that was drained takes clients again.
type Resume struct {
	Device DeviceID `json:"device"`
}

func (e Resume) apply(c *Core) bool { return false }

// Remove takes a device out on which nobody is: one that is drained, or lost.
// Nobody waits for it any more. It may come back as a lost one may.
type Remove struct {
	Device DeviceID `json:"device"`
}

func (e Remove) apply(c *Core) bool { return false }

// Returned says that a device that was lost or removed is there again, under
// its number and with its Usage. Is describes it as it is now.
type Returned struct {
	Device DeviceID `json:"device"`
	Is     Device   `json:"is"`
}

func (e Returned) apply(c *Core) bool { return false }

// Move says that somebody wants a client to run on a device: it leaves the one
// where it is, and its next Want is served there and nowhere else. It stays
// there until it leaves for another reason.
type Move struct {
	Client ClientID `json:"client"`
	Device DeviceID `json:"device"`
}

func (e Move) apply(c *Core) bool { return false }

// Refuses says why the core would not do what an event asks for: Move, Drain,
// Resume, Remove, Returned and Added, which come from people. It returns nil if
// it would, and for all other events. It changes nothing. A refused event that
// is told nevertheless changes nothing either.
func (c *Core) Refuses(e Event) error { return fmt.Errorf("not built yet") }
