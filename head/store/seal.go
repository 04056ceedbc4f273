package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	bolt "go.etcd.io/bbolt"
)

// Every value in the file is sealed: a mark, a checksum of the record's bucket, key and value, and
// the value. What a disk or a person has altered, or moved to another key, is found when it is read,
// and never served.
//
// No value begins with the mark before it is sealed: values are JSON or names.
const (
	sealMark = 1
	sealSize = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(bucket string, key, value []byte) uint32 {
	sum := crc32.Checksum([]byte(bucket), castagnoli)
	sum = crc32.Update(sum, castagnoli, binary.BigEndian.AppendUint32(nil, uint32(len(key))))
	return crc32.Update(crc32.Update(sum, castagnoli, key), castagnoli, value)
}

func seal(bucket string, key, value []byte) []byte {
	sealed := make([]byte, sealSize, sealSize+len(value))
	sealed[0] = sealMark
	binary.BigEndian.PutUint32(sealed[1:], checksum(bucket, key, value))
	return append(sealed, value...)
}

func isSealed(stored []byte) bool { return len(stored) >= sealSize && stored[0] == sealMark }

// unseal returns the value of a record, which is valid as long as the transaction; an error if the record
// is not as it was written.
func unseal(bucket string, key, stored []byte) ([]byte, error) {
	if !isSealed(stored) || binary.BigEndian.Uint32(stored[1:]) != checksum(bucket, key, stored[sealSize:]) {
		return nil, fmt.Errorf("%w: %s is not as it was written, by its checksum", errDamaged, recordName(bucket, key))
	}
	return stored[sealSize:], nil
}

// recordName names a record for an administrator.
func recordName(bucket string, key []byte) string {
	switch {
	case bucket == string(atBucket) && len(key) == 16:
		return fmt.Sprintf("the record %s of job %d", bucket, number(key[8:]))
	case len(key) == 8:
		return fmt.Sprintf("the record %s of job %d", bucket, number(key))
	}
	return fmt.Sprintf("the record %s/%.40q", bucket, key)
}

// Verify reads the whole file, and tells of each record that is not as it was written. It reads a
// page at a time, so that commits go on.
func (s *Store) Verify(ctx context.Context, tell func(error)) error {
	for _, bucket := range append([][]byte{atBucket}, names()...) {
		for after, more := []byte(nil), true; more; {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := s.view(func(tx *bolt.Tx) error {
				read := 0
				c := tx.Bucket(bucket).Cursor()
				k, v := behind(c, after)
				for ; k != nil && read < pageBytes; k, v = c.Next() {
					read += len(k) + len(v)
					after = clone(k)
					if _, err := unseal(string(bucket), k, v); err != nil {
						tell(trouble(s.path, err))
					}
				}
				more = k != nil
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// pageBytes is about how much of the file one transaction reads or changes where all of it is.
const pageBytes = 4 << 20

// behind moves a cursor to the first record behind a key; nil is before all.
func behind(c *bolt.Cursor, after []byte) (k, v []byte) {
	if after == nil {
		return c.First()
	}
	if k, v = c.Seek(after); bytes.Equal(k, after) {
		return c.Next()
	}
	return k, v
}
