package simt

// KeepOneImage makes a program forget the code of a kernel as soon as another
// is launched for the first time.
func (p *Program) KeepOneImage() { p.imageRoom = 0 }
