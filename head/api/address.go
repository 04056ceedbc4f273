package api

// Where a head is found unless somebody says otherwise: on its own machine at a
// socket, from others at a port.
const (
	DefaultSocket = "@muster-head"
	DefaultPort   = "9422"
)

// StreamProtocol is what a request for exec is upgraded to: the frames of
// wire/agent, input one way and output the other.
const StreamProtocol = "muster-stream"
