package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/highwayhash"
)

// Streams take up three quarters of what is free and of what they have already.
func TestHowMuchOfADiskStreamsTakeUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := DefaultLimit(dir)
	if before <= 0 || DefaultLimit(dir+"/none") != 0 {
		t.Fatalf("the default limit is %d on a disk and %d for a missing directory, want some and 0", before, DefaultLimit(dir+"/none"))
	}
	if err := os.MkdirAll(dir+"/a/b", 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(dir + "/a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 1 << 43 // of holes, which take up nothing; a file may be as large everywhere
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if more := DefaultLimit(dir) - before; more < size/4*3-size/100 || more > size/4*3+size/100 {
		t.Errorf("with %d bytes in the directory the default limit is %d more, want three quarters of them", int64(size), more)
	}
}

// A directory is for one process, whose number is in it.
func TestADirectoryIsLocked(t *testing.T) {
	t.Parallel()
	if _, err := Acquire(""); err == nil {
		t.Error("no directory is locked")
	}
	dir := filepath.Join(t.TempDir(), "new")
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprint(os.Getpid())
	if text, err := os.ReadFile(dir + "/lock"); err != nil || string(text) != own+"\n" {
		t.Errorf("the lock file has %q, %v; want the process's number", text, err)
	}
	if _, err := Acquire(dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process "+own) {
		t.Errorf("a second Acquire: %v, want ErrInUse with the process's number", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Acquire(dir)
	if err != nil {
		t.Fatalf("Acquire after Release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(dir + "/file"); err == nil || errors.Is(err, ErrInUse) {
		t.Errorf("a file is locked as a directory: %v", err)
	}
}

// A store that was closed in order says so once.
func TestAStoreThatWasClosedInOrder(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	for i, want := range []bool{false, true, false} {
		if i == 1 {
			if err := s.MarkClosed(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.wasClosedCleanly(); got != want || err != nil {
			t.Errorf("at look %d it was closed in order: %t, %v", i, got, err)
		}
	}
	if err := os.MkdirAll(s.Dir+"/closed/x", 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := s.wasClosedCleanly(); got || err == nil {
		t.Errorf("where that cannot be told it was: %t, %v", got, err)
	}
	if err := s.MarkClosed(); err == nil {
		t.Error("where that cannot be noted there is no error")
	}
}

// recorded is a message as a block that is not packed has it.
func recorded(sequence uint64, subject, headers, data string) []byte {
	const stream, block = "EV_pods", "1"
	row := make([]byte, recordHead, 256)
	binary.LittleEndian.PutUint64(row[4:], sequence)
	binary.LittleEndian.PutUint16(row[recordHead-2:], uint16(len(subject)))
	row = append(row, subject...)
	rest := len(row)
	flag := uint32(0)
	if headers != "" {
		row = binary.LittleEndian.AppendUint32(row, uint32(len(headers)))
		rest, flag = len(row), headersFlag
	}
	row = append(append(row, headers...), data...)
	key := sha256.Sum256([]byte(stream + "-" + block))
	sum, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		panic(err)
	}
	for _, part := range [][]byte{row[4 : recordHead-2], row[recordHead : recordHead+len(subject)], row[rest:]} {
		_, _ = sum.Write(part)
	}
	row = sum.Sum(row)
	binary.LittleEndian.PutUint32(row, uint32(len(row))|flag)
	return row
}

// What is damaged in a block is taken out, and what is sound stays, to the byte; so does what is behind the
// last record that can be told.
func TestWhatIsSoundInABlock(t *testing.T) {
	t.Parallel()
	const headers = "NATS/1.0\r\nA: 1\r\n\r\n"
	least, bare := recorded(4, "", "", ""), recorded(5, "ev.pods.d", headers, "")
	one, two, three := recorded(1, "ev.pods.a", "", "first"), recorded(2, "ev.pods.b", headers, "second"), recorded(3, "ev.pods.c", "", "")
	changed := func(row []byte, at int) []byte {
		row = slices.Clone(row)
		row[at] ^= 1
		return row
	}
	longer := slices.Clone(two) // its headers are said to end elsewhere, which no sum covers
	longer[recordHead+len("ev.pods.b")]--
	for name, c := range map[string]struct {
		block   [][]byte
		sound   [][]byte
		damaged int
	}{
		"whole":                            {[][]byte{one, two, three}, [][]byte{one, two, three}, 0},
		"of nothing":                       {nil, nil, 0},
		"headers without a body":           {[][]byte{bare, one}, [][]byte{bare, one}, 0},
		"the shortest record":              {[][]byte{changed(least, 4), one, changed(least, 4)}, [][]byte{one}, 2},
		"a sequence":                       {[][]byte{one, changed(two, 4), three}, [][]byte{one, three}, 1},
		"a subject":                        {[][]byte{changed(one, recordHead), two, three}, [][]byte{two, three}, 1},
		"a header":                         {[][]byte{one, changed(two, recordHead+9+4+10), three}, [][]byte{one, three}, 1},
		"the length of headers":            {[][]byte{one, longer, three}, [][]byte{one, three}, 1},
		"a body":                           {[][]byte{changed(one, len(one)-9), changed(two, len(two)-9), three}, [][]byte{three}, 2},
		"a sum":                            {[][]byte{one, two, changed(three, len(three)-1)}, [][]byte{one, two}, 1},
		"the end of what was written":      {[][]byte{one, two[:len(two)-1]}, [][]byte{one, two[:len(two)-1]}, 0},
		"all but a record's head and sum":  {[][]byte{one, make([]byte, recordHead+recordSum-1)}, [][]byte{one, make([]byte, recordHead+recordSum-1)}, 0},
		"zeroes at the end":                {[][]byte{one, make([]byte, 100)}, [][]byte{one, make([]byte, 100)}, 0},
		"damage, and the end of a writing": {[][]byte{changed(one, 4), three, two[:20]}, [][]byte{three, two[:20]}, 1},
	} {
		sound, damaged, err := withoutDamaged(slices.Concat(c.block...), "EV_pods", "/data/msgs/1.blk")
		if err != nil || damaged != c.damaged || !bytes.Equal(sound, slices.Concat(c.sound...)) {
			t.Errorf("%s: %d are damaged, and %q is sound, %v", name, damaged, sound, err)
		}
	}
	if _, damaged, _ := withoutDamaged(slices.Clone(one), "EV_pods", "/data/msgs/2.blk"); damaged != 1 {
		t.Error("a record of another block is sound")
	}
}

// TestSpace: what files take up is counted, and a directory that is not there is an error.
func TestSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	free, has, err := Space(dir)
	if err != nil || has != 5000 || free <= 0 {
		t.Errorf("%d free and %d taken: %v", free, has, err)
	}
	if _, _, err := Space(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Space of a missing directory: %v, want ErrNotExist", err)
	}
}
