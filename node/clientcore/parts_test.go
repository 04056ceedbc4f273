package clientcore

import (
	"errors"
	"slices"
	"testing"

	"muster/device"
	"muster/vmm"
	"muster/wire/control"
)

// Parts alone, without a Core.

func kindsOf(ops []Op) (all []Kind) {
	for i := range ops {
		all = append(all, ops[i].Kind)
	}
	return all
}

func wants(t *testing.T, what string, ops []Op, want ...Kind) {
	t.Helper()
	if got := kindsOf(ops); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestVerdictsTellAReasonOnce(t *testing.T) {
	v := verdicts{step: &step{}}
	v.Current.Slot = -1
	why := errors.Join(errors.New("no room"), device.ErrOutOfMemory)
	v.explain(why)
	v.refuseWith(ResultOf(why))
	v.explain(why)
	v.refuseWith(notFound)
	wants(t, "two that failed", v.ops, Tell, Refused, Refused)
	v.start(0)
	v.answer(3)
	v.answer(4)
	wants(t, "two answers", v.ops, Reply, Reply)
	if first, second := v.ops[0].Result, v.ops[1].Result; first != outOfMemory || second != success {
		t.Errorf("%d and %d are answered, want the first failure and then success", first, second)
	}
}

func TestRoomIsAskedForOnce(t *testing.T) {
	r := room{step: &step{}, queue: &queue{queueState: queueState{Head: &Head{}}}}
	need := func(bytes uint64) (bool, error) { r.start(0); return r.commit(bytes) }
	if ok, err := need(10); ok || err != nil {
		t.Errorf("%v, %v without room", ok, err)
	}
	wants(t, "the first time", r.ops, Say)
	if ok, err := need(10); ok || err != nil {
		t.Errorf("%v, %v while it is asked for", ok, err)
	}
	wants(t, "while it is asked for", r.ops)
	r.answeredCommit(control.Committed{Bytes: 9, Granted: true}) // of an earlier request
	r.answeredCommit(control.Committed{Bytes: 10, Reason: "full"})
	if _, err := need(10); err == nil || err.Error() != "full" {
		t.Errorf("refused with %v", err)
	}
	need(10)
	r.answeredCommit(control.Committed{Bytes: 10, Granted: true})
	if ok, err := need(10); !ok || err != nil {
		t.Errorf("%v, %v with room", ok, err)
	}
}

func TestStreamsWaitForEachOtherOnce(t *testing.T) {
	ss := streams{standing: &standing{step: &step{}}}
	blocking, apart := &Stream{Blocking: true}, &Stream{}
	ss.Streams = Streams{ByID: map[uint32]*Stream{legacyID: {}, 1: blocking, 2: apart}, All: []uint32{legacyID, 1, 2}}
	give := func(id uint32) []Op {
		ss.start(0)
		ss.give(id, ss.ByID[id], vmm.Device(0))
		return ss.ops
	}
	wants(t, "the first work", give(1))
	wants(t, "work apart", give(2))
	wants(t, "work of the legacy stream", give(legacyID), After)
	wants(t, "and again", give(legacyID))
	wants(t, "work behind it", give(1), After)
	wants(t, "and more", give(1))
	wants(t, "work apart", give(2))
}

// A fault may answer a load into a further context: the next load, at home, is not about that.
func TestALoadElsewhereThatFailed(t *testing.T) {
	home, further := &Context{Place: vmm.Device(0), Number: 1}, &Context{Place: vmm.Device(1), Number: 2, Has: map[uint64]bool{}}
	ms := modules{standing: &standing{step: &step{}}, Modules: newModules(1 << 20)}
	ms.All[1] = &Module{}
	ms.awaits(1)
	ms.Contexts = []*Context{home, further}
	ms.loadAt(further, 1, nil)
	ms.Contexts = []*Context{home}
	ms.loadNext(home)
	ms.loaded(Outcome{})
	if !ms.All[1].Loaded || len(ms.Unplaced) > 0 {
		t.Errorf("%+v is not in the context at home, and %v await one", *ms.All[1], ms.Unplaced)
	}
}
