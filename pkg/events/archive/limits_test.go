package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// written is a file with one message whose block has the given number of bytes.
func written(t *testing.T, size int) (text []byte, err error) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, About{Streams: []string{"S"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(Stream{Name: "S", State: bus.State{Last: 1}}); err != nil {
		t.Fatal(err)
	}
	m := events.Message{Subject: "a", Sequence: 1, Time: time.Unix(0, 1), Header: map[string][]string{"A": {"b"}}}
	head := len(wordStream+" S\n") + len(appendMessage(nil, m)) + len(fmt.Sprint(size)) - len("0")
	m.Data = make([]byte, size-head)
	if len(appendMessage([]byte(wordStream+" S\n"), m)) != size {
		t.Fatalf("the block is of another size than %d", size)
	}
	_ = w.Add(m)
	err = w.Close()
	return out.Bytes(), err
}

// The largest block that is written can be read, and no larger one is written: 16 MiB, a full
// block and the largest message.
func TestTheLargestBlock(t *testing.T) {
	const largest = 16 << 20
	if largest < 8<<20+blockSize {
		t.Fatal("the largest message of a bus does not fit")
	}
	text, err := written(t, largest)
	if err != nil {
		t.Fatalf("the largest block: %v", err)
	}
	f, err := New("the file", bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	if u, err := f.read(f.streams["S"], 0); err != nil || len(u.text) != largest {
		t.Errorf("the largest unit is not read whole: %v", err)
	}
	if _, err := written(t, largest+1); err == nil || !strings.Contains(err.Error(), "is too large") {
		t.Errorf("a larger one is written: %v", err)
	}
}

// The largest allowed number of streams can be read, and no more.
func TestAsManyStreamsAsMayBe(t *testing.T) {
	streams := make([]streamIndex, 16<<10+1)
	for n := range streams {
		streams[n].Name = fmt.Sprint("STREAM_", n)
		streams[n].State = bus.State{First: 1}
	}
	if found, err := decodeIndex(encodeIndex(t, streams[1:]...)); err != nil || len(found.Streams) != 16<<10 {
		t.Errorf("of 16384 streams %d are read: %v", len(found.Streams), err)
	}
	if _, err := decodeIndex(encodeIndex(t, streams...)); err == nil || !strings.Contains(err.Error(), "it has 16385 streams, the most is 16384") {
		t.Errorf("an index of 16385 streams: %v, want it refused", err)
	}
}

// A block has at most one message more than the number of shortest messages that fill it.
func TestAsManyMessagesAsFit(t *testing.T) {
	shortest := appendMessage(nil, events.Message{Sequence: 1, Time: time.Unix(0, 0)})
	n, size := 0, len(wordStream+" S\n")
	for ; size < blockSize; n++ {
		size += len(shortest)
	}
	if maxMessages < n || maxMessages > n+1 {
		t.Errorf("a block may have %d messages, and %d fit", maxMessages, n)
	}
}

// A frame of incompressible data is a little longer than the data.
func TestHowLongAFrameMayBe(t *testing.T) {
	for most, want := range map[int]int64{0: 64, 255: 319, 256: 321, 1 << 20: 1<<20 + 4096 + 64} {
		if got := packedMost(most); got != want {
			t.Errorf("a frame of %d bytes may be %d long, want %d", most, got, want)
		}
	}
}

// An index has each stream once, with a name of one line, and the right kind for a log.
func TestWhatAnIndexNames(t *testing.T) {
	named := func(name string) streamIndex {
		return streamIndex{Stream: Stream{Name: name, State: bus.State{First: 1}}}
	}
	log := named("EV_pods")
	log.Kind = &somePods
	other := named("EV_nodes")
	other.Kind = &somePods
	for name, c := range map[string]struct {
		streams []streamIndex
		says    string // "": it is read
	}{
		"two": {[]streamIndex{named("A"), named("B")}, ""}, "a log": {[]streamIndex{log}, ""}, "one twice": {[]streamIndex{named("A"), named("A")}, `stream 1 is named "A"`},
		"no name": {[]streamIndex{named("")}, `stream 0 is named ""`}, "a name of two lines": {[]streamIndex{named("A\nB")}, `stream 0 is named "A\nB"`}, "a name with a return": {[]streamIndex{named("A\rB")}, "stream 0 is named"},
		"a log of another kind": {[]streamIndex{other}, `is of the kind "pods"`}, "one that cannot be": {[]streamIndex{{Stream: Stream{Name: "A"}}}, `stream "A"`},
	} {
		if _, err := decodeIndex(encodeIndex(t, c.streams...)); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for _, text := range []string{"{", `{"streams":7}`, `{"streams":[7]}`} {
		if _, err := decodeIndex([]byte(text)); err == nil {
			t.Errorf("%s is an index", text)
		}
	}
}

// A frame is read only if it is unchanged, and decompresses to no more than its stated size and
// the limit.
func TestFramesThatCannotBeRead(t *testing.T) {
	pack := newForgery(t).pack
	good := pack.EncodeAll(bytes.Repeat([]byte("words "), 100), nil)
	bent := bytes.Clone(good)
	bent[len(bent)-2] ^= 0xff
	for name, c := range map[string]struct {
		packed []byte
		sum    uint64 // 0: the right sum
		most   int
		says   string // "": it is read
	}{
		"as it should be": {good, 0, 600, ""}, "of another sum": {good, 7, 600, "sum is not what it was"}, "more than may be": {good, 0, 599, "600 bytes, the most is 599"},
		"no frame": {[]byte("something else"), 0, 600, "unpack: "}, "half a frame": {good[:len(good)-3], 0, 600, "unpack: "}, "a bent frame": {bent, 0, 600, "unpack: "},
		"a frame that is too long": {append(bytes.Clone(good), make([]byte, 1000)...), 0, 600, errSize.Error()},
	} {
		f := &File{name: "the file", from: bytes.NewReader(c.packed), unpacker: newUnpacker(t)}
		text, err := f.frame(extent{0, int64(len(c.packed)), cmp.Or(c.sum, sumOf(c.packed))}, c.most)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && len(text) != 600 {
			t.Errorf("%s: %d bytes, %v, want %q", name, len(text), err, c.says)
		}
	}
	f := &File{name: "the file", from: bytes.NewReader(good), unpacker: newUnpacker(t)}
	if _, err := f.frame(extent{5, int64(len(good)), sumOf(good)}, 600); err == nil || !strings.Contains(err.Error(), "read the file") {
		t.Errorf("a frame that goes on behind the end: %v", err)
	}
}

func newUnpacker(t *testing.T) *zstd.Decoder {
	t.Helper()
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return unpacker
}

// A message begins with a line of numbers. The sequence must be positive; the time may be any.
func TestHowAMessageBegins(t *testing.T) {
	for text, fits := range map[string]bool{
		"message 3 7 0 2 a\n{}\n": true, "message 3 0 0 2 a\n{}\n": true, "message 3 -5 0 2 a\n{}\n": true, "message 1 7 0 2 a\n{}\n": true, "message 0 7 0 2 a\n{}\n": false,
		"message -3 7 0 2 a\n{}\n": false, "massage 3 7 0 2 a\n{}\n": false, "message 3 7 0 3 a\n{}\n": false, "message 3 7 0 2": false, "message 3 7 0 9223372036854775807 a\n{}\n": false,
	} {
		if p, next, err := nextPlace([]byte(text), 0); (err == nil) != fits || fits && next != len(text) || !fits && next != 0 {
			t.Errorf("%q begins with %+v, and the next at %d: %v", text, p, next, err)
		}
	}
}

// A write that is impossible fails at once: of a stream after one that does not fit, and of a
// file whose year has no JSON form.
func TestWhatCannotBeWritten(t *testing.T) {
	disk := &narrow{1 << 20}
	w, err := NewWriter(disk, About{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(Stream{Name: "S"}); err != nil {
		t.Fatal(err)
	}
	disk.left = 0
	if err := w.Begin(Stream{Name: "T"}); !errors.Is(err, errFull) {
		t.Errorf("a stream on a disk that is full: %v", err)
	}
	if _, err := NewWriter(&bytes.Buffer{}, About{Exported: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil || !strings.Contains(err.Error(), "write the file") {
		t.Errorf("a writer in the year 10000: %v, want an error", err)
	}
}

// Messages of any size are found in a truncated file.
func TestALargeMessageIsLeft(t *testing.T) {
	large := appendMessage(nil, events.Message{Subject: "a", Sequence: 1, Time: time.Unix(1, 0), Header: map[string][]string{"A": {"b"}}, Data: make([]byte, 3*blockSize+7)})
	small := appendMessage(nil, events.Message{Subject: "a", Sequence: 2, Time: time.Unix(2, 0), Header: map[string][]string{"A": {"b"}}, Data: []byte("{}")})
	text := bytes.Join([][]byte{[]byte("stream S\n"), large, small, small[:5]}, nil)
	if got := readable(bufio.NewReaderSize(bytes.NewReader(text), maxLine)); len(got) != 1 || got[0].Messages != 2 || got[0].Last != 2 {
		t.Errorf("left are %+v", got)
	}
}
