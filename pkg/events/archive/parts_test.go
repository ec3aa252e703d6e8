package archive

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// A block has the messages that the index states, in order, none later than stated; anything
// else is an error.
func TestWhatABlockHolds(t *testing.T) {
	const begin, one, two = "stream S\n", "message 3 7 0 2 a\n{}\n", "message 5 8 6 0 b\nX: yz\n\n"
	of := func(first, last uint64, messages int, latest int64) block {
		return block{First: first, Last: last, Messages: messages, Latest: latest}
	}
	for name, c := range map[string]struct {
		text  string
		block block
		holds int // 0: error
	}{
		"as it should be":                   {begin + one + two, of(3, 5, 2, 8), 2},
		"one alone":                         {begin + one, of(3, 3, 1, 7), 1},
		"of a later time":                   {begin + one + two, of(3, 5, 2, 7), 0},
		"one that comes before":             {begin + two + one, of(5, 5, 2, 8), 0},
		"one twice":                         {begin + one + one, of(3, 3, 2, 8), 0},
		"one before the first":              {begin + one + two, of(4, 5, 2, 8), 0},
		"one behind the last":               {begin + one + two, of(3, 4, 2, 8), 0},
		"fewer":                             {begin + one, of(3, 5, 2, 8), 0},
		"more":                              {begin + one + two, of(3, 5, 1, 8), 0},
		"another first one":                 {begin + one + two, of(2, 5, 2, 8), 0},
		"another last one":                  {begin + one + two, of(3, 6, 2, 8), 0},
		"no beginning":                      {"stream S", of(3, 5, 2, 8), 0},
		"another beginning":                 {"streams S\n" + one, of(3, 3, 1, 8), 0},
		"no line":                           {begin + "message 3 7 0 2 a", of(3, 3, 1, 8), 0},
		"another word":                      {begin + "massage 3 7 0 2 a\n{}\n", of(3, 3, 1, 8), 0},
		"a number less":                     {begin + "message 3 7 0 2\n{}\n", of(3, 3, 1, 8), 0},
		"no number":                         {begin + "message 3 7 x 2 a\n{}\n", of(3, 3, 1, 8), 0},
		"no sequence":                       {begin + "message 0 7 0 2 a\n{}\n", of(0, 0, 1, 8), 0},
		"less than no headers":              {begin + "message 3 7 -1 2 a\n{}\n", of(3, 3, 1, 8), 0},
		"less than no body":                 {begin + "message 3 7 0 -1 a\n{}\n", of(3, 3, 1, 8), 0},
		"headers that go on":                {begin + "message 3 7 9 0 a\n{}\n", of(3, 3, 1, 8), 0},
		"a body that goes on":               {begin + "message 3 7 0 4 a\n{}\n", of(3, 3, 1, 8), 0},
		"a body without an end":             {begin + "message 3 7 0 2 a\n{}", of(3, 3, 1, 8), 0},
		"a body with something else behind": {begin + "message 3 7 0 2 a\n{}x\n", of(3, 3, 1, 8), 0},
	} {
		stream, found, err := places([]byte(c.text), c.block)
		if (err == nil) != (c.holds > 0) || len(found) != c.holds || err == nil && stream != "S" {
			t.Errorf("%s: the text has %d messages of %q, %v; want %d of S", name, len(found), stream, err, c.holds)
		}
		if err != nil && !errors.Is(err, errText) {
			t.Errorf("%s: the error is %v, want errText", name, err)
		}
	}
}

// A message is unchanged after writing and reading, with any headers.
func TestAMessageComesBack(t *testing.T) {
	m := events.Message{
		Stream: "S", Subject: "a.b", Sequence: 12, Time: time.Unix(3, 4).UTC(), Data: []byte("x\ny"),
		Header: map[string][]string{"A": {"1", "two", ""}, "B": {`\n` + "\n\r" + `\`}, "C": {"a: b"}},
	}
	text := appendMessage(nil, m)
	p, next, err := nextPlace(text, 0)
	if err != nil || next != len(text) {
		t.Fatalf("%v, next at %d of %d", err, next, len(text))
	}
	if got, err := p.message("S", text, false); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("the message is decoded as %+v (%v)\nwant %+v", got, err, m)
	}
	got, err := p.message("S", text, true)
	if err != nil || got.Data != nil || got.Get("Nats-Msg-Size") != "3" || got.Header["B"][0] != m.Header["B"][0] {
		t.Errorf("the message without its body is decoded as %+v (%v)", got, err)
	}
	broken := []byte("message 1 2 4 0 a\nX=y\n\n")
	if p, _, err = nextPlace(broken, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.message("S", broken, false); !errors.Is(err, errText) {
		t.Errorf("a header that is none: %v", err)
	}
}

// A trailer points to an index that precedes it in the file.
func TestWhereATrailerLeads(t *testing.T) {
	const size = 1000
	for name, c := range map[string]struct {
		at extent
		ok bool
	}{
		"the beginning":          {extent{0, 0, 9}, true},
		"as far as may be":       {extent{size - 10 - int64(trailerSize), 10, 9}, true},
		"further":                {extent{size - 9 - int64(trailerSize), 10, 9}, false},
		"before the beginning":   {extent{-1, 10, 9}, false},
		"less than nothing":      {extent{0, -1, 9}, false},
		"more than all":          {extent{0, size + 1, 9}, false},
		"where numbers turn":     {extent{1<<63 - 1, 1<<63 - 1, 9}, false},
		"nothing, at the end":    {extent{size - int64(trailerSize), 0, 9}, true},
		"nothing, in the middle": {extent{size - int64(trailerSize) + 1, 0, 9}, false},
	} {
		got, ok := decodeTrailer(encodeTrailer(c.at), size)
		if ok != c.ok || ok && got != c.at {
			t.Errorf("%s: the trailer is decoded as %+v, %t; want %+v, %t", name, got, ok, c.at, c.ok)
		}
	}
	text := encodeTrailer(extent{0, 10, 9})
	for i := range text[:8+len(trailerWord)] {
		bent := bytes.Clone(text)
		if bent[i]++; i >= 0 {
			if got, ok := decodeTrailer(bent, size); ok || got != (extent{}) {
				t.Errorf("with byte %d changed the trailer is decoded as %+v, want none", i, got)
			}
		}
	}
	for _, wrong := range [][]byte{nil, text[:len(text)-1], append(bytes.Clone(text), 0)} {
		if got, ok := decodeTrailer(wrong, size); ok || got != (extent{}) {
			t.Errorf("%d bytes lead to %+v", len(wrong), got)
		}
	}
}

// The list of the subjects is sorted, has at most one subject for each message, and points to
// the blocks of the last messages.
func TestWhatAListOfSubjectsHolds(t *testing.T) {
	blocks := []block{{First: 1, Last: 4}, {First: 5, Last: 9}, {First: 10, Last: 12}}
	for name, c := range map[string]struct {
		lines string
		holds int // -1: error
	}{
		"nothing": {"", 0}, "one": {"4 0 a\n", 1}, "two": {"4 0 a\n12 0 1 1 b\n", 2}, "the first of a block": {"5 1 a\n", 1}, "the last of a block": {"9 1 a\n", 1},
		"not sorted": {"4 0 b\n3 0 a\n", -1}, "one twice": {"4 0 a\n3 0 a\n", -1}, "more than messages": {"1 0 a\n2 0 b\n3 0 c\n4 0 d\n", -1},
		"no end": {"4 0 a", -1}, "no subject": {"4 0 \n", -1}, "no block": {"4 a\n", -1}, "no number": {"x 0 a\n", -1}, "no block's number": {"4 x a\n", -1},
		"a block that is not there": {"12 3 a\n", -1}, "a block twice": {"4 0 0 a\n", -1}, "a step back": {"4 1 -1 a\n", -1}, "steps too far": {"12 1 2 a\n", -1},
		"before its block": {"4 1 a\n", -1}, "behind its block": {"10 1 a\n", -1}, "no message": {"0 0 a\n", -1},
	} {
		of := streamIndex{Stream: Stream{Name: "S", State: bus.State{Messages: 3}}, Blocks: blocks}
		list, err := decodeSubjects([]byte("subjects S\n"+c.lines), of)
		if (err == nil) != (c.holds >= 0) || err == nil && list.len() != c.holds || err != nil && !errors.Is(err, errText) {
			t.Errorf("%s: %d subjects, %v", name, list.len(), err)
		}
	}
	list, err := decodeSubjects([]byte("subjects S\n4 0 a\n12 0 1 1 b\n"), streamIndex{Stream: Stream{Name: "S", State: bus.State{Messages: 3}}, Blocks: blocks})
	if err != nil {
		t.Fatal(err)
	}
	if name, last, in := list.line(1); name != "b" || last != 12 || !reflect.DeepEqual(in, []int{0, 1, 2}) || string(list.name(1)) != "b" {
		t.Errorf("the second is %s, with the last %d, in %v", name, last, in)
	}
	for name, want := range map[string]uint64{"a": 4, "b": 12, "c": 0, "": 0, "aa": 0} {
		if last, _ := list.find(name); last != want {
			t.Errorf("the last of %q is %d, want %d", name, last, want)
		}
	}
	if _, err := decodeSubjects([]byte("subjects T\n"), streamIndex{Stream: Stream{Name: "S"}}); err == nil {
		t.Error("a list of another stream is read")
	}
}

// narrow is a disk with room for that many bytes.
type narrow struct{ left int }

var errFull = errors.New("full")

func (n *narrow) Write(text []byte) (int, error) {
	if len(text) > n.left {
		return 0, errFull
	}
	n.left -= len(text)
	return len(text), nil
}

// A writer requires messages in order; after an error it returns the error again, and writes no
// more.
func TestWhatAWriterTakes(t *testing.T) {
	message := func(sequence uint64) events.Message {
		return events.Message{Subject: "a", Sequence: sequence, Time: time.Unix(0, int64(sequence))}
	}
	for name, c := range map[string]struct {
		sequences []uint64
		fits      bool
	}{"in order": {[]uint64{3, 4, 9}, true}, "one twice": {[]uint64{3, 3}, false}, "one before": {[]uint64{3, 2}, false}, "behind the end": {[]uint64{3, 10}, false}} {
		var out bytes.Buffer
		w, err := NewWriter(&out, About{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Begin(Stream{Name: "S", State: bus.State{Last: 9}}); err != nil {
			t.Fatal(err)
		}
		for _, sequence := range c.sequences {
			err = w.Add(message(sequence))
		}
		if (err == nil) != c.fits || err != nil && !strings.Contains(err.Error(), "of S: it comes after 3, and the stream ends with 9") {
			t.Errorf("%s: the messages are added with %v, want them accepted: %t", name, err, c.fits)
		}
		if again := w.Add(message(9)); !c.fits && again != err {
			t.Errorf("%s: then the error is %v", name, again)
		}
		if closed := w.Close(); !c.fits && closed != err || w.Size() != int64(out.Len()) {
			t.Errorf("%s: at the end the error is %v; %d of %d bytes are counted", name, closed, w.Size(), out.Len())
		}
		if s := w.Streams(); len(s) != 1 || c.fits && (s[0].State.First != 3 || s[0].State.Messages != 3) {
			t.Errorf("%s: written is %+v", name, s)
		}
	}
	if w, err := NewWriter(&narrow{}, About{}); !errors.Is(err, errFull) || w == nil {
		t.Errorf("on a full disk: %v", err)
	}
	w, err := NewWriter(&narrow{1 << 10}, About{})
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Begin(Stream{Name: "S", State: bus.State{Last: 1 << 20}})
	random := []byte(strings.Repeat("0123456789abcdef", blockSize/16))
	for i := range random {
		random[i] = byte(i * i >> 3 * 7919 >> 5)
	}
	for n := uint64(1); n < 100 && err == nil; n++ {
		m := message(n)
		m.Data = random
		err = w.Add(m)
	}
	if !errors.Is(err, errFull) || !errors.Is(w.Close(), errFull) {
		t.Errorf("on a disk that gets full: %v", err)
	}
	if w, err = NewWriter(&bytes.Buffer{}, About{}); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{9, 10, 11} {
		w.bound(size, 10, "leave something out")
		if (w.err != nil) != (size > 10) {
			t.Errorf("a part of %d bytes where 10 are the most: %v", size, w.err)
		}
	}
	if !strings.Contains(w.Close().Error(), "leave something out (11 bytes, the most is 10)") {
		t.Errorf("a part that is too large: %v", w.err)
	}
}

// Blocks that were read lately are cached; the oldest are dropped first.
func TestWhichBlocksAreKept(t *testing.T) {
	var c cache
	third := &unpacked{text: make([]byte, cached/6)} // the text counts twice
	for n := range 4 {
		c.put(cacheKey{"S", n}, third)
	}
	for n, want := range []bool{false, true, true, true} {
		if kept := c.get(cacheKey{"S", n}) != nil; kept != want {
			t.Errorf("block %d is kept: %t", n, kept)
		}
	}
	c.put(cacheKey{"S", 3}, third)
	c.put(cacheKey{"S", 4}, &unpacked{text: make([]byte, cached/2+1)})
	if c.get(cacheKey{"S", 4}) != nil || c.get(cacheKey{"S", 1}) == nil || c.size != 3*third.size() {
		t.Errorf("one that is too large is kept, or one that is there has pushed others out: %d bytes", c.size)
	}
	c.put(cacheKey{"S", 5}, &unpacked{text: make([]byte, cached/2)})
	if c.get(cacheKey{"S", 5}) == nil || len(c.blocks) != 1 || c.size != cached {
		t.Errorf("%d blocks are kept with %d bytes", len(c.blocks), c.size)
	}
	u := &unpacked{places: []place{{sequence: 3}, {sequence: 5}}}
	for sequence, want := range map[uint64]int{1: 0, 3: 0, 4: 1, 5: 1, 6: 2} {
		if got := u.find(sequence); got != want {
			t.Errorf("behind %d the message %d comes, want %d", sequence, got, want)
		}
	}
}

// A closed file cannot be read; other files cannot be opened.
func TestOpenAndClose(t *testing.T) {
	name := t.TempDir() + "/record"
	if f, err := Open(name); !errors.Is(err, os.ErrNotExist) || f != nil {
		t.Errorf("a file that is not there: %v, %v", f, err)
	}
	if err := os.WriteFile(name, []byte("no record"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(name); err == nil || f != nil {
		t.Errorf("a file that is no record is opened: %v, %v", f, err)
	}
	if err := os.WriteFile(name, forge(t, func(*streamIndex) {}), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.load(f.streams[forgedStream], 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a block of a file that is closed: %v", err)
	}
}
