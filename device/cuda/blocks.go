package cuda

import "muster/device"

// block is a box of an array: x and width in bytes, the rest in rows and slices. offset is
// where its first byte is in the linear memory that has the array's contents in rows.
type block struct {
	level                int
	x, y, z              uint64
	width, height, depth uint64
	offset               uint64
}

// blocksOf returns the boxes of an array that correspond to the bytes from..to of its linear
// memory, in order. An element that is only partly in the range is included whole.
func blocksOf(levels []device.ArrayLevel, element, from, to uint64) []block {
	var all []block
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
func appendBlocks(all []block, level int, l device.ArrayLevel, row, a, b uint64) []block {
	slice := row * l.Height
	for a < b {
		k := block{level: level, x: a % row, y: a / row % l.Height, z: a / slice, offset: l.Offset + a, width: row, height: 1, depth: 1}
		var size uint64
		switch {
		case k.x != 0 || b-a < row:
			k.width = min(row-k.x, b-a)
			size = k.width
		case k.y != 0 || b-a < slice:
			k.height = min(l.Height-k.y, (b-a)/row)
			size = k.height * row
		default:
			k.height, k.depth = l.Height, (b-a)/slice
			size = k.depth * slice
		}
		all = append(all, k)
		a += size
	}
	return all
}
