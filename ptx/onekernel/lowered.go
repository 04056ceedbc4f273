package onekernel

import "muster/ptx/simt/program"

// lowered returns the kernel's code as the software GPU runs it.
func (r *Kernel) lowered() *program.Lowered { return r.program.Kernel(r.function.Name).Lowered() }

// loweredDocument is lowered code in a Document.
type loweredDocument struct {
	Slots     []loweredSlots    `json:"slots"`
	Constants []loweredConstant `json:"constants"`
	Blocks    []loweredBlock    `json:"blocks"` // the first is number 0
}

type loweredSlots struct {
	Class     string `json:"class"`
	Constants int    `json:"constant_slots"`
	Carried   int    `json:"carried_slots"`
	Private   int    `json:"private_slots"`
}

type loweredConstant struct {
	Slot  string `json:"slot"`
	Value string `json:"value"`
}

type loweredBlock struct {
	Function     string               `json:"function"` // the device function that begins here, if any
	From         []int                `json:"from"`
	Returned     bool                 `json:"returned_to"`
	Meet         bool                 `json:"lanes_meet"`
	Instructions []loweredInstruction `json:"instructions"`
}

type loweredInstruction struct {
	At          int    `json:"index"`
	Text        string `json:"text"`
	Private     bool   `json:"private"`
	Affine      bool   `json:"affine"`
	Line        int    `json:"line"` // of the PTX text; 0 if it belongs to none
	Instruction string `json:"instruction"`
}

// setLowered adds lowered code.
func (doc *Document) setLowered(l *program.Lowered) {
	d := &loweredDocument{Slots: []loweredSlots{}, Constants: []loweredConstant{}}
	for _, s := range l.Slots {
		d.Slots = append(d.Slots, loweredSlots(s))
	}
	for _, c := range l.Constants {
		d.Constants = append(d.Constants, loweredConstant(c))
	}
	for i := range l.Blocks {
		b := &l.Blocks[i]
		block := loweredBlock{Function: b.Function, From: append([]int{}, b.From...), Returned: b.Returned, Meet: b.Meets()}
		for _, x := range b.Instructions {
			block.Instructions = append(block.Instructions, loweredInstruction{x.At, x.Text, x.Private, x.Affine, x.Pos.Line, x.For})
		}
		d.Blocks = append(d.Blocks, block)
	}
	doc.Lowered = d
}
