package ranges

import "muster/device"

// Block is a box of an array: x and width in bytes, the rest in rows and slices. offset is
// where its first byte is in the linear memory that has the array's contents in rows.
type Block struct {
	Level                int
	X, Y, Z              uint64
	Width, Height, Depth uint64
	Offset               uint64
}

// BlocksOf returns the boxes of an array that correspond to the bytes from..to of its linear
// memory, in order. An element that is only partly in the range is included whole.
func BlocksOf(levels []device.ArrayLevel, element, from, to uint64) []Block {
	var all []Block
	for i, l := range levels {
		row := l.Width * element
		end := l.Offset + row*l.Height*l.Depth
		a, b := max(from, l.Offset), min(to, end)
		if a >= b {
			continue
		}
		a, b = a-l.Offset, b-l.Offset
		a, b = a/element*element, (b+element-1)/element*element
		all = appendBlocks(all, i, l, row, a, b)
	}
	return all
}

// appendBlocks cuts a range of one level into boxes: the rest of a row, the rows to the end of
// a slice, whole slices, then the rows of the last slice, and the beginning of the last row.
func appendBlocks(all []Block, level int, l device.ArrayLevel, row, a, b uint64) []Block {
	slice := row * l.Height
	for a < b {
		k := Block{Level: level, X: a % row, Y: a / row % l.Height, Z: a / slice, Offset: l.Offset + a, Width: row, Height: 1, Depth: 1}
		var size uint64
		switch {
		case k.X != 0 || b-a < row:
			k.Width = min(row-k.X, b-a)
			size = k.Width
		case k.Y != 0 || b-a < slice:
			k.Height = min(l.Height-k.Y, (b-a)/row)
			size = k.Height * row
		default:
			k.Height, k.Depth = l.Height, (b-a)/slice
			size = k.Depth * slice
		}
		all = append(all, k)
		a += size
	}
	return all
}
