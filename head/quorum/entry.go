package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"muster/head"
)

// An entry is: its format, a checksum of what follows, the term, and the records.
const (
	entryFormat = 1
	entryHead   = 1 + 4 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errEntry = errors.New("an entry of the heads' log makes no sense: run the same version of muster on all heads")

// encode makes an entry. A record without a value is one that is to be removed.
func encode(term uint64, records []head.Record) []byte {
	size := entryHead
	for i := range records {
		r := &records[i]
		size += len(r.Bucket) + len(r.Key) + len(r.Value) + 3*binary.MaxVarintLen32
	}
	b := make([]byte, 5, size)
	b[0] = entryFormat
	b = binary.BigEndian.AppendUint64(b, term)
	for i := range records {
		r := &records[i]
		b = binary.AppendUvarint(b, uint64(len(r.Bucket)))
		b = append(b, r.Bucket...)
		b = binary.AppendUvarint(b, uint64(len(r.Key)))
		b = append(b, r.Key...)
		if r.Value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(r.Value))+1)
		b = append(b, r.Value...)
	}
	binary.BigEndian.PutUint32(b[1:], crc32.Checksum(b[5:], castagnoli))
	return b
}

func decode(b []byte) (term uint64, records []head.Record, err error) {
	if len(b) < entryHead || b[0] != entryFormat {
		return 0, nil, errEntry
	}
	if binary.BigEndian.Uint32(b[1:]) != crc32.Checksum(b[5:], castagnoli) {
		return 0, nil, fmt.Errorf("%w: by its checksum, it is not as it was made", errEntry)
	}
	term, b = binary.BigEndian.Uint64(b[5:]), b[entryHead:]
	part := func() (value []byte) {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			err, b = errEntry, nil
			return nil
		}
		value, b = b[used:used+int(n)], b[used+int(n):]
		return value
	}
	for len(b) > 0 {
		r := head.Record{Bucket: head.Bucket(part()), Key: part()}
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used)+1 {
			return 0, nil, errEntry
		}
		b = b[used:]
		if n > 0 {
			r.Value, b = b[:n-1:n-1], b[n-1:]
		}
		records = append(records, r)
	}
	return term, records, err
}
