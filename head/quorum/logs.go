package quorum

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"muster/head/store"
)

// logs is the head's log as Raft wants it, with what Raft must remember.
type logs struct{ *store.Log }

func (l logs) FirstIndex() (uint64, error) { first, _, err := l.Ends(); return first, err }
func (l logs) LastIndex() (uint64, error)  { _, last, err := l.Ends(); return last, err }

func (l logs) GetLog(index uint64, into *raft.Log) error {
	text, err := l.Entry(index)
	if errors.Is(err, store.ErrNoSuch) {
		return raft.ErrLogNotFound
	}
	if err != nil {
		return err
	}
	if len(text) < 9 {
		return errEntry
	}
	*into = raft.Log{Index: index, Term: binary.BigEndian.Uint64(text), Type: raft.LogType(text[8]), Data: text[9:]}
	return nil
}

func (l logs) StoreLog(one *raft.Log) error { return l.StoreLogs([]*raft.Log{one}) }

func (l logs) StoreLogs(all []*raft.Log) error {
	entries := make([]store.Entry, len(all))
	for i, one := range all {
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 9+len(one.Data)), one.Term)
		entries[i] = store.Entry{Number: one.Index, Value: append(append(value, byte(one.Type)), one.Data...)}
	}
	return l.Append(entries)
}

func (l logs) DeleteRange(from, to uint64) error { return l.Cut(from, to) }

func (l logs) Set(key, value []byte) error { return l.Remember(key, value) }

func (l logs) Get(key []byte) ([]byte, error) {
	value, err := l.Fact(key)
	if errors.Is(err, store.ErrNoSuch) {
		return nil, nil
	}
	return value, err
}

func (l logs) SetUint64(key []byte, n uint64) error {
	return l.Remember(key, binary.BigEndian.AppendUint64(nil, n))
}

func (l logs) GetUint64(key []byte) (uint64, error) {
	value, err := l.Get(key)
	if err == nil && value != nil && len(value) != 8 {
		err = errEntry
	}
	if err != nil || value == nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}

// snapshotKey is the fact that says which entries the store has for sure.
var snapshotKey = []byte("snapshot")

// snapshots are the store as Raft wants it: the store has all that a snapshot of it would have, and may be
// ahead of it, since entries that it has are skipped.
type snapshots struct {
	logs  logs
	store *store.Store
}

func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &sink{of: s, meta: raft.SnapshotMeta{Version: version, ID: "store", Index: index, Term: term, Configuration: c, ConfigurationIndex: ci}}, nil
}

func (s *snapshots) last() (*raft.SnapshotMeta, error) {
	text, err := s.logs.Get(snapshotKey)
	if err != nil || text == nil {
		return nil, err
	}
	var meta raft.SnapshotMeta
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, errors.Join(errEntry, err)
	}
	return &meta, nil
}

func (s *snapshots) keep(meta *raft.SnapshotMeta) error {
	text, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	return s.logs.Set(snapshotKey, text)
}

func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	meta, err := s.last()
	if err != nil || meta == nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{meta}, nil
}

// Open returns a copy of the store for another head. A copy that this head received needs no reader: Restore
// takes the file itself.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, err := s.last()
	switch {
	case err != nil:
		return nil, nil, err
	case meta == nil:
		return nil, nil, store.ErrNoSuch
	case id == received:
		return meta, io.NopCloser(nil), nil
	}
	copied, size, err := s.store.Copy()
	meta.Size = size
	return meta, copied, err
}

// received is the name of a copy that came from another head.
const received = "received"

// sink takes a copy of another head's store. For a snapshot of this head's own nothing is written.
type sink struct {
	of   *snapshots
	meta raft.SnapshotMeta
	file *store.Received
}

func (s *sink) Write(b []byte) (n int, err error) {
	if s.file == nil {
		if s.file, err = s.of.store.Receive(); err != nil {
			return 0, err
		}
	}
	return s.file.Write(b)
}

func (s *sink) ID() string {
	if s.file != nil {
		return received
	}
	return s.meta.ID
}

func (s *sink) Close() error {
	if s.file != nil {
		if err := s.file.Keep(); err != nil {
			return err
		}
	}
	return s.of.keep(&s.meta)
}

func (s *sink) Cancel() error {
	if s.file != nil {
		return s.file.Drop()
	}
	return nil
}
