//go:build linux && amd64

package native

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
func (c *compiler) takeTurn(finish *label) {
	c.legacy(true, opMov, rdx, at(regFrame, offTurns))
	c.legacy(true, []byte{0x85}, rdx, inReg(rdx)) // test
	c.jumpIf(ccEqual, finish)
	c.immediate(true, 7, at(regFrame, offFull), 0)
	c.jumpIf(ccEqual, finish)
	c.immediate(false, 7, at(regWait, 0), -1)
	c.jumpIf(ccNotEqual, finish)
	// The counter is read first, so that it stays near LastTurn however often code
	// comes here at the end of the grid.
	c.legacy(true, opMov, rax, at(rdx, 0))
	c.legacy(true, opCmp, rax, at(regFrame, offLastTurn))
	c.jumpIf(ccAboveEqual, finish)
	// A locked instruction waits for all stores of the block that has ended. A worker
	// that is alone needs none: the counter is in rax already.
	var shared label
	c.immediate(true, 7, at(regFrame, offAlone), 0)
	c.jumpIf(ccEqual, &shared)
	c.immediate(true, 0, at(rdx, 0), 1)
	c.jump(&c.turn)
	c.bind(&shared)
	c.set(rax, 1)
	c.plain("lock", 0xf0)
	c.legacy(true, []byte{0x0f, 0xc1}, rax, at(rdx, 0)) // xadd
	c.legacy(true, opCmp, rax, at(regFrame, offLastTurn))
	c.jumpIf(ccAboveEqual, finish)
	c.jump(&c.turn)
}

// beginTurn emits the routine that begins the block whose number is in rax.
func (c *compiler) beginTurn() {
	c.bind(&c.turn)
	c.legacy(true, opStore, rax, at(regFrame, offTurn))
	c.splitIndex()
	for _, i := range c.Indices {
		c.legacy(false, opStore, [...]int{rcx, rsi, rdi}[i.Dimension], home(i.Ref))
	}
	var cleared label
	c.legacy(true, opMov, rcx, at(regFrame, offSharedWords))
	c.legacy(true, []byte{0x85}, rcx, inReg(rcx)) // test
	c.jumpIf(ccEqual, &cleared)
	c.legacy(true, opMov, rdi, at(regFrame, offShared))
	c.set(rax, 0)
	c.plain("rep stosq", 0xf3, 0x48, 0xab)
	c.bind(&cleared)
	c.vex(vmovdqu, true, 0, 0, at(regFrame, offTurnMask))
	c.vex(vmovdquStore, true, 0, 0, at(regFrame, offMask))
	c.vex(vmovdquStore, true, 0, 0, at(regFrame, offLive))
	c.legacy(true, opMov, rax, at(regFrame, offTurnLanes))
	c.legacy(true, opStore, rax, at(regFrame, offLanes))
	c.legacy(true, opMov, rax, at(regFrame, offTurnChunks))
	c.legacy(true, opStore, rax, at(regFrame, offActiveChunks))
	c.activeLanes()
	c.set(rax, 1)
	c.legacy(true, opStore, rax, at(regFrame, offFull))
	c.set(rax, 0)
	c.legacy(true, opStore, rax, at(regFrame, offSpin))
	c.jump(c.head(0))
}

// splitIndex computes the index of the block with the number in rax: in rcx, rsi and
// rdi. Most grids have one dimension and need no division.
func (c *compiler) splitIndex() {
	var row, done label
	c.set(rsi, 0)
	c.set(rdi, 0)
	c.legacy(true, opMov, rcx, inReg(rax))
	c.legacy(true, opCmp, rax, at(regFrame, offGridX))
	c.jumpIf(ccBelow, &done)
	divide := func(by int) {
		c.set(rdx, 0)
		c.legacy(true, []byte{0xf7}, 6, at(regFrame, by)) // div
	}
	divide(offGridX)
	c.legacy(true, opMov, rcx, inReg(rdx))
	c.legacy(true, opMov, rsi, inReg(rax))
	c.legacy(true, opCmp, rax, at(regFrame, offGridY))
	c.jumpIf(ccBelow, &row)
	divide(offGridY)
	c.legacy(true, opMov, rsi, inReg(rdx))
	c.legacy(true, opMov, rdi, inReg(rax))
	c.bind(&row)
	c.bind(&done)
}
