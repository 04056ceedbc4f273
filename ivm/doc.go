// Package ivm lets a program's elements, on CPUs and GPUs of several nodes, share named objects.
//
// An element is a process. The one that a user starts is the first; it creates the others, which
// run the same program from its beginning and find themselves by their number:
//
//	e, err := ivm.Enter(ctx)
//	if e.ID() == 0 {
//		v, err := ivm.Malloc[float32](ctx, e, "v", 1000)
//		children, err := e.CreatePEs(ctx, ivm.CPU(ivm.Any), 4)
//		for _, c := range children {
//			err := e.Wait(ctx, c)
//		}
//	} else {
//		v, err := ivm.Map[float32](ctx, e, "v")
//		v.Data[e.ID()] = 1
//		err = v.Put(ctx, 0, len(v.Data)) // only what changed moves
//		err = e.Signal(ctx)
//	}
//	err = e.Exit()
//
// All elements on a node have the same memory of an object. Elements on other nodes see each
// other's writes after a put there and a get here: docs/ivm.md has the memory model.
//
// The methods have the names of the paper's 21 calls without their prefix. WaitAny, Barrier, Nodes
// and the asynchronous forms are additions. An Element and what it maps may be used by several
// goroutines.
//
// The package knows the protocol with the node daemon, and nothing else of it.
package ivm
