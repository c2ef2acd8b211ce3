package restore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// blockerName makes a WAL folder unusable for every etcd while it is there. It
// has the form of a segment's name, so that etcd finds a WAL (and does not
// bootstrap an empty cluster from its flags), and sorts after every segment, so
// that etcd always reads it.
const blockerName = "ffffffffffffffff-ffffffffffffffff.wal"

// blocker is what the file says, to people and to the next run.
type blocker struct {
	What     string `json:"what"`
	Plan     string `json:"plan"`
	Member   string `json:"member"`
	DataDir  string `json:"data_dir"`
	WhatToDo string `json:"what_to_do"`
	WhatNot  string `json:"what_not_to_do"`
}

func newBlocker(p *Plan, m Member) blocker {
	return blocker{
		What:     "an unfinished restore: etcd refuses to start from this folder, so that no half-built cluster serves",
		Plan:     p.ID,
		Member:   m.Name,
		DataDir:  m.DataDir,
		WhatToDo: "run `requorum restore` again with the same flags: it completes the restore or starts it anew",
		WhatNot:  "don't delete this file to get etcd started, unless you moved back what lies under a set-aside name",
	}
}

// blockerRecordType is a record type that no etcd knows.
const blockerRecordType = 0x7271

// encode frames the text as a WAL record that cannot be read over: its type is
// unknown and its checksum wrong. (Plain text would look like a torn write,
// which etcd repairs by cutting it off. A gap in the sequence of names alone is
// not noticed after segment 0.)
func (b blocker) encode() ([]byte, error) {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, err
	}
	text = append(append([]byte{'\n'}, text...), '\n')
	for {
		record, err := proto.Marshal(&walpb.Record{Type: proto.Int64(blockerRecordType), Crc: proto.Uint32(0xbad0bad0), Data: text})
		if err != nil {
			return nil, err
		}
		// Frames are whole multiples of 8 bytes. Zeros as padding could fill the
		// rest of a sector, which is the other thing that etcd takes for a torn
		// write: so pad with text.
		if len(record)%8 == 0 {
			return append(binary.LittleEndian.AppendUint64(nil, uint64(len(record))), record...), nil
		}
		text = append(text, '\n')
	}
}

// writeBlocker puts a blocker into a folder, over an older one, whole or not
// at all, and syncs both.
func writeBlocker(walDir string, b blocker) error {
	data, err := b.encode()
	if err != nil {
		return fmt.Errorf("block %s: %w", walDir, err)
	}
	return writeFileSynced(filepath.Join(walDir, blockerName), data)
}

// readBlocker reads the blocker of a folder; nil when there is none.
func readBlocker(walDir string) (*blocker, error) {
	path := filepath.Join(walDir, blockerName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	start, end := bytes.IndexByte(data, '{'), bytes.LastIndexByte(data, '}')
	var b blocker
	if start < 0 || end < start || json.Unmarshal(data[start:end+1], &b) != nil || b.Plan == "" {
		return nil, fmt.Errorf("%s has the name of a restore's blocker and is none: look at it and move it away", path)
	}
	return &b, nil
}

// removeBlocker makes a WAL folder usable, durably.
func removeBlocker(walDir string) error {
	if err := os.Remove(filepath.Join(walDir, blockerName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unblock %s: %w", walDir, err)
	}
	return syncDir(walDir)
}
