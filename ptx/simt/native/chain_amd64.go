//go:build linux && amd64

package native

import "muster/ptx/simt/native/asm"

// Blocks one behind the other. When all threads of a block have ended, the code takes
// the number of the next one from the counter of all workers, and runs it, without a
// return to the caller: for small blocks the return would cost more than the block.
// The caller finds the number of the block that runs in Frame.Turn.

// startsFresh says whether no instruction may read a register before the block has
// written it: then the values that the last block has left need not be cleared.
func (c *compiler) startsFresh() bool {
	for n, r := range c.refs {
		if !c.isConstant(r) && c.needed[0][n>>6]>>(n&63)&1 != 0 {
			return false
		}
	}
	return true
}

// takeTurn emits the end of a block: the next one begins if all lanes are here, none
// waits, and there is a next one. Else the caller ends the threads.
func (c *compiler) takeTurn(finish *asm.Label) {
	c.Legacy(true, asm.OpMov, asm.RDX, asm.At(regFrame, offTurns))
	c.Legacy(true, []byte{0x85}, asm.RDX, asm.InReg(asm.RDX)) // test
	c.JumpIf(asm.Equal, finish)
	c.Immediate(true, 7, asm.At(regFrame, offFull), 0)
	c.JumpIf(asm.Equal, finish)
	c.Immediate(false, 7, asm.At(regWait, 0), -1)
	c.JumpIf(asm.NotEqual, finish)
	// The counter is read first, so that it stays near LastTurn however often code
	// comes here at the end of the grid.
	c.Legacy(true, asm.OpMov, asm.RAX, asm.At(asm.RDX, 0))
	c.Legacy(true, asm.OpCmp, asm.RAX, asm.At(regFrame, offLastTurn))
	c.JumpIf(asm.AboveEqual, finish)
	// A locked instruction waits for all stores of the block that has ended. A worker
	// that is alone needs none: the counter is in rax already.
	var shared asm.Label
	c.Immediate(true, 7, asm.At(regFrame, offAlone), 0)
	c.JumpIf(asm.Equal, &shared)
	c.Immediate(true, 0, asm.At(asm.RDX, 0), 1)
	c.Jump(&c.turn)
	c.Bind(&shared)
	c.Set(asm.RAX, 1)
	c.Plain("lock", 0xf0)
	c.Legacy(true, []byte{0x0f, 0xc1}, asm.RAX, asm.At(asm.RDX, 0)) // xadd
	c.Legacy(true, asm.OpCmp, asm.RAX, asm.At(regFrame, offLastTurn))
	c.JumpIf(asm.AboveEqual, finish)
	c.Jump(&c.turn)
}

// beginTurn emits the routine that begins the block whose number is in rax.
func (c *compiler) beginTurn() {
	c.Bind(&c.turn)
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offTurn))
	c.splitIndex()
	for _, i := range c.Indices {
		c.Legacy(false, asm.OpStore, [...]int{asm.RCX, asm.RSI, asm.RDI}[i.Dimension], home(i.Ref))
	}
	var cleared asm.Label
	c.Legacy(true, asm.OpMov, asm.RCX, asm.At(regFrame, offSharedWords))
	c.Legacy(true, []byte{0x85}, asm.RCX, asm.InReg(asm.RCX)) // test
	c.JumpIf(asm.Equal, &cleared)
	c.Legacy(true, asm.OpMov, asm.RDI, asm.At(regFrame, offShared))
	c.Set(asm.RAX, 0)
	c.Plain("rep stosq", 0xf3, 0x48, 0xab)
	c.Bind(&cleared)
	c.VEX(asm.Vmovdqu, true, 0, 0, asm.At(regFrame, offTurnMask))
	c.VEX(asm.VmovdquStore, true, 0, 0, asm.At(regFrame, offMask))
	c.VEX(asm.VmovdquStore, true, 0, 0, asm.At(regFrame, offLive))
	c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offTurnLanes))
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offLanes))
	c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offTurnChunks))
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offActiveChunks))
	c.activeLanes()
	c.Set(asm.RAX, 1)
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offFull))
	c.Set(asm.RAX, 0)
	c.Legacy(true, asm.OpStore, asm.RAX, asm.At(regFrame, offSpin))
	c.Jump(c.head(0))
}

// splitIndex computes the index of the block with the number in rax: in rcx, rsi and
// rdi. Most grids have one dimension and need no division.
func (c *compiler) splitIndex() {
	var row, done asm.Label
	c.Set(asm.RSI, 0)
	c.Set(asm.RDI, 0)
	c.Legacy(true, asm.OpMov, asm.RCX, asm.InReg(asm.RAX))
	c.Legacy(true, asm.OpCmp, asm.RAX, asm.At(regFrame, offGridX))
	c.JumpIf(asm.Below, &done)
	divide := func(by int) {
		c.Set(asm.RDX, 0)
		c.Legacy(true, []byte{0xf7}, 6, asm.At(regFrame, by)) // div
	}
	divide(offGridX)
	c.Legacy(true, asm.OpMov, asm.RCX, asm.InReg(asm.RDX))
	c.Legacy(true, asm.OpMov, asm.RSI, asm.InReg(asm.RAX))
	c.Legacy(true, asm.OpCmp, asm.RAX, asm.At(regFrame, offGridY))
	c.JumpIf(asm.Below, &row)
	divide(offGridY)
	c.Legacy(true, asm.OpMov, asm.RSI, asm.InReg(asm.RDX))
	c.Legacy(true, asm.OpMov, asm.RDI, asm.InReg(asm.RAX))
	c.Bind(&row)
	c.Bind(&done)
}
