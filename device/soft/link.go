package soft

import (
	"errors"
	"fmt"
	"strings"

	"muster/device"
	"muster/ptx"
	"muster/ptx/fatbin"
)

// emptyPTX is the result of a link without inputs.
const emptyPTX = ".version 7.0\n.target sm_70\n.address_size 64\n"

// Link makes one PTX text of several. A single input is returned unchanged.
//
// A text that cannot be lowered may be invalid, or may only call functions that no input defines. To
// tell the two apart, Link lowers it again with stubs for missing functions: if that works, a function
// is missing, which is an ErrLink for the result and no error for a check of single inputs.
func (c *Context) Link(l device.Link) ([]byte, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if len(l.Inputs) == 0 {
		return []byte(emptyPTX), nil
	}
	inputs, err := linkTexts(l.Inputs, fatbin.MaxLoaded)
	if err != nil {
		return nil, err
	}
	tree, err := linkTrees(inputs, false)
	if err != nil {
		return nil, err
	}
	if err := c.lowers(tree); err != nil {
		stubbed, unlinked := linkTrees(inputs, true)
		if unlinked != nil || c.lowers(stubbed) != nil {
			return nil, err
		}
		if !l.Check { // valid with stubs: a function is missing
			return nil, fmt.Errorf("%w: %s", device.ErrLink, strings.TrimPrefix(err.Error(), device.ErrInvalidPTX.Error()+": "))
		}
	}
	switch {
	case l.Check:
		return nil, nil
	case len(inputs) == 1:
		return []byte(inputs[0].Text), nil
	}
	return []byte(tree.String()), nil
}

// lowers returns why a module cannot be loaded, or nil. The addresses of its variables do not
// matter for that, so it takes the first ones.
func (c *Context) lowers(tree *ptx.Module) error {
	size, err := variablesSize(tree, c.dev.variableGuard(), c.dev.budget.total)
	if err != nil {
		return err
	}
	return new(module).load(tree, varsBases[0], size, c.dev.variableGuard())
}

// linkTexts finds the PTX in the inputs. All texts together may have at most most bytes: fat
// binaries are compressed, and a small one can expand to a very large text.
func linkTexts(all []device.LinkInput, most int) ([]ptx.Input, error) {
	var inputs []ptx.Input
	for i, in := range all {
		name := in.Name
		switch {
		case name == "" && len(all) == 1:
			name = "module.ptx"
		case name == "":
			name = fmt.Sprintf("input %d", i+1)
		}
		if in.Kind == device.LinkObject || in.Kind == device.LinkLibrary {
			return nil, fmt.Errorf("%s is an object or a library of a host's compiler, which only real GPUs link: give PTX: %w", name, device.ErrNoKernelImage)
		}
		text, err := textOf(in.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if most -= len(text); most < 0 {
			return nil, fmt.Errorf("%s: with what comes before it there are more bytes of PTX than can be linked: link fewer inputs: %w", name, device.ErrOutOfMemory)
		}
		inputs = append(inputs, ptx.Input{Name: name, Text: text})
	}
	return inputs, nil
}

func linkTrees(inputs []ptx.Input, stubs bool) (*ptx.Module, error) {
	tree, err := ptx.Link(inputs, stubs)
	var wrong *ptx.LinkError
	switch {
	case err == nil:
		return tree, nil
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("%w: %w", device.ErrLink, err)
	}
	for _, in := range inputs {
		if _, alone := ptx.Parse(in.Name, in.Text); alone != nil {
			return nil, fmt.Errorf("%w: %w", unreadable(in.Text), alone)
		}
	}
	return nil, fmt.Errorf("%w: %w", device.ErrLink, err)
}
