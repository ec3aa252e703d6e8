package archive

import (
	"bufio"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// A text without its end is read up to the first incomplete or invalid message; streams without
// a message are not listed.
func TestHowMuchOfAFileIsLeft(t *testing.T) {
	message := func(n int) string { return fmt.Sprintf("message %d %d 5 2 a\nX: y\n{}\n", n, n*1e9) }
	at := func(second int64) time.Time { return time.Unix(second, 0).UTC() }
	both := []Stretch{{"S", 3, 4, 2, at(4)}, {"T", 5, 5, 1, at(5)}}
	one := both[:1]
	for name, c := range map[string]struct {
		text string
		want []Stretch
	}{
		"all of it":                      {"stream S\n" + message(3) + message(4) + "stream T\n" + message(5), both},
		"several blocks of a stream":     {"stream S\n" + message(3) + "stream S\n" + message(4) + "stream T\n" + message(5), both},
		"a list of subjects":             {"stream S\n" + message(3) + message(4) + "subjects S\n4 0 a\n9 0 b\nstream T\n" + message(5), both},
		"an empty list of subjects":      {"stream S\n" + message(3) + message(4) + "subjects S\nstream T\n" + message(5), both},
		"a list that is cut off":         {"stream S\n" + message(3) + message(4) + "subjects S\n4 0", one},
		"a list at the end":              {"stream S\n" + message(3) + message(4) + "subjects S\n4 0 a\n", one},
		"a stream of nothing":            {"stream R\nstream S\n" + message(3) + message(4), one},
		"a stream of nothing at the end": {"stream S\n" + message(3) + message(4) + "stream T\n", one},
		"a message that is cut off":      {"stream S\n" + message(3) + message(4) + message(5)[:25], one},
		"a message without its last":     {"stream S\n" + message(3) + message(4) + strings.TrimSuffix(message(5), "\n"), one},
		"the first message is cut off":   {"stream S\n" + message(3) + message(4) + "stream T\n" + message(5)[:25], one},
		"a line that is cut off":         {"stream S\n" + message(3) + message(4) + "messa", one},
		"something else":                 {"stream S\n" + message(3) + message(4) + "{}\n" + message(5), one},
		"a message of no stream":         {message(3) + "stream S\n" + message(4), nil},
		"a message without headers":      {"stream S\n" + message(3) + message(4) + "message 5 5 0 2 a\n{}\n" + message(6), one},
		"less than no headers":           {"stream S\n" + message(3) + message(4) + "message 5 5 -1 2 a\n{}\n" + message(6), one},
		"less than no body":              {"stream S\n" + message(3) + message(4) + "message 5 5 5 -1 a\nX: y\n" + message(6), one},
		"much less than no headers":      {"stream S\n" + message(3) + message(4) + "message 5 5 -100 2 a\n" + message(6), one},
		"much less than no body":         {"stream S\n" + message(3) + message(4) + "message 5 5 2 -100 a\n" + message(6), one},
		"more headers than may be":       {"stream S\n" + message(3) + message(4) + fmt.Sprintf("message 5 5 %d 2 a\n", maxBlock+1) + message(6), one},
		"more body than may be":          {"stream S\n" + message(3) + message(4) + fmt.Sprintf("message 5 5 5 %d a\n", maxBlock+1) + message(6), one},
		"a number that is none":          {"stream S\n" + message(3) + message(4) + "message x 5 5 2 a\nX: y\n{}\n" + message(6), one},
		"a sum that does not fit":        {"stream S\n" + message(3) + message(4) + "message 5 5 16 2 a\nMillrace-Sum: 0\n{}\n" + message(6), one},
		"nothing":                        {"", nil},
	} {
		got := readable(bufio.NewReaderSize(strings.NewReader(c.text), maxLine))
		if !reflect.DeepEqual(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%s: readable are %+v, want %+v", name, got, c.want)
		}
	}
}

// The error for a file without its end says what is left, and how to view it.
func TestWhatIsLeftIsTold(t *testing.T) {
	until := time.Date(2026, 11, 27, 15, 0, 0, 0, time.UTC)
	for want, c := range map[string]Cut{
		"F is cut off or damaged at its end (it has 9 bytes): copy or export it again; nothing of it can be read": {Name: "F", Size: 9},
		"F is cut off or damaged at its end (it has 9 bytes): copy or export it again; `zstd -dc` shows what is left: 0 messages of 0 streams, " +
			"and of S 3 to 8 (4 messages, until 2026-11-27T15:00:00Z)": {Name: "F", Size: 9, Readable: []Stretch{{"S", 3, 8, 4, until}}},
		"F is cut off or damaged at its end (it has 9 bytes): copy or export it again; `zstd -dc` shows what is left: 12 messages of 2 streams, " +
			"and of S 3 to 8 (4 messages, until 2026-11-27T15:00:00Z)": {Name: "F", Size: 9, Readable: []Stretch{{"A", 1, 5, 5, until}, {"B", 1, 9, 7, until}, {"S", 3, 8, 4, until}}},
	} {
		if got := c.Error(); got != want {
			t.Errorf("the error is\n%s, want\n%s", got, want)
		}
	}
}

// A JSON text is decoded only if its length allows for its entries and fields.
func TestWhatAnIndexMayTakeUp(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		fits bool
	}{
		"nothing":               {"", true},
		"as many objects":       {strings.Repeat("{", 32) + strings.Repeat("[", 33), true}, // 65 characters allow one more
		"one more":              {strings.Repeat("{", 33) + strings.Repeat("[", 33), false},
		"as many fields":        {strings.Repeat(",", 1117), true}, // they allow 93 more
		"one more field":        {strings.Repeat(",", 1118), false},
		"what a text pays for":  {strings.Repeat("{"+strings.Repeat(" ", 47), 1000), true},
		"what it does not":      {strings.Repeat("{"+strings.Repeat(" ", 20), 1000), false},
		"fields that are short": {strings.Repeat(",123", 1000), true},
	} {
		if err := checkShape([]byte(c.text)); (err == nil) != c.fits {
			t.Errorf("%s: the shape is checked with %v, want it accepted: %t", name, err, c.fits)
		}
	}
}

// Frames follow each other up to the index, without holes.
func TestWhereFramesLie(t *testing.T) {
	frame := func(at, length int64) extent { return extent{Offset: at, Length: length} }
	stream := func(subjects extent, blocks ...extent) streamIndex {
		s := streamIndex{Subjects: subjects}
		for _, b := range blocks {
			s.Blocks = append(s.Blocks, block{extent: b})
		}
		return s
	}
	for name, c := range map[string]struct {
		streams []streamIndex
		fits    bool
	}{
		"no streams":            {nil, true},
		"one after the other":   {[]streamIndex{stream(frame(30, 5), frame(10, 12), frame(22, 8)), stream(frame(36, 4), frame(35, 1))}, true},
		"a gap":                 {[]streamIndex{stream(frame(30, 10), frame(10, 12), frame(23, 7))}, false},
		"over each other":       {[]streamIndex{stream(frame(30, 10), frame(10, 12), frame(21, 9))}, false},
		"a list elsewhere":      {[]streamIndex{stream(frame(29, 11), frame(10, 20))}, false},
		"an end before":         {[]streamIndex{stream(frame(30, 9), frame(10, 20))}, false},
		"an end behind":         {[]streamIndex{stream(frame(30, 11), frame(10, 20))}, false},
		"a frame of nothing":    {[]streamIndex{stream(frame(10, 30), frame(10, 0))}, false},
		"a frame at the begin":  {[]streamIndex{stream(frame(20, 20), frame(0, 20))}, false},
		"a list of nothing":     {[]streamIndex{stream(frame(40, 0), frame(10, 30))}, false},
		"a stream of a list":    {[]streamIndex{stream(frame(10, 30))}, true},
		"a length that is none": {[]streamIndex{stream(frame(10, -1))}, false},
	} {
		x := index{Streams: c.streams}
		if err := x.checkExtents(40); (err == nil) != c.fits {
			t.Errorf("%s: the extents are checked with %v, want them accepted: %t", name, err, c.fits)
		}
	}
}

// The blocks of a stream follow each other, and match the stream's state.
func TestHowBlocksFollow(t *testing.T) {
	of := func(first, last uint64, messages int, latest int64) block {
		return block{First: first, Last: last, Messages: messages, Latest: latest}
	}
	state := func(first, last, messages uint64) bus.State {
		return bus.State{First: first, Last: last, Messages: messages}
	}
	for name, c := range map[string]struct {
		state  bus.State
		blocks []block
		fits   bool
	}{
		"none":                           {state(8, 7, 0), nil, true},
		"none, from elsewhere":           {state(7, 7, 0), nil, false},
		"two":                            {state(3, 9, 4), []block{of(3, 5, 3, 7), of(6, 6, 1, 7)}, true},
		"up to the end":                  {state(3, 9, 4), []block{of(3, 5, 3, 7), of(9, 9, 1, 8)}, true},
		"behind the end":                 {state(3, 9, 4), []block{of(3, 5, 3, 7), of(10, 10, 1, 8)}, false},
		"over each other":                {state(3, 9, 4), []block{of(3, 5, 3, 7), of(5, 6, 1, 8)}, false},
		"from the first":                 {state(1, 9, 1), []block{of(1, 1, 1, 7)}, true},
		"before the first":               {state(0, 9, 1), []block{of(0, 1, 1, 7)}, false},
		"the end before the begin":       {state(3, 9, 1), []block{of(3, 2, 1, 7)}, false},
		"no message":                     {state(3, 9, 0), []block{of(3, 5, 0, 7)}, false},
		"more messages than have room":   {state(3, 9, 4), []block{of(3, 5, 4, 7)}, false},
		"as many as fit":                 {state(1, 1<<20, uint64(maxMessages)), []block{of(1, 1<<20, maxMessages, 7)}, true},
		"more than fit":                  {state(1, 1<<20, uint64(maxMessages)+1), []block{of(1, 1<<20, maxMessages+1, 7)}, false},
		"times that go back":             {state(3, 9, 4), []block{of(3, 5, 3, 7), of(6, 6, 1, 6)}, false},
		"another number of messages":     {state(3, 9, 5), []block{of(3, 5, 3, 7), of(6, 6, 1, 7)}, false},
		"another first one":              {state(2, 9, 4), []block{of(3, 5, 3, 7), of(6, 6, 1, 7)}, false},
		"an end that has none behind it": {state(0, 1<<64-1, 0), nil, false},
		"times from before 1970":         {state(3, 9, 1), []block{of(3, 3, 1, -5)}, true},
	} {
		s := streamIndex{Stream: Stream{State: c.state}, Blocks: c.blocks}
		if err := s.check(); (err == nil) != c.fits {
			t.Errorf("%s: the index of the stream is checked with %v, want it accepted: %t", name, err, c.fits)
		}
	}
}

// A full block is ended, so that no block has much more than 256 kB; until then, messages are
// added to it.
func TestWhenABlockIsFull(t *testing.T) {
	var out strings.Builder
	w, err := NewWriter(&out, About{Streams: []string{"S"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(Stream{Name: "S", State: bus.State{Last: 9}}); err != nil {
		t.Fatal(err)
	}
	head := len("stream S\n") + len("message 1 1 0 262100 a\n\n")
	for n, size := range []int{blockSize - head - 1, 1, blockSize - head, 5, 6} {
		m := events.Message{Subject: "a", Sequence: uint64(n + 1), Time: time.Unix(0, 1), Data: make([]byte, size)}
		if err := w.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, b := range w.index.Streams[0].Blocks {
		got = append(got, b.Messages)
	}
	if !reflect.DeepEqual(got, []int{2, 1, 2}) {
		t.Errorf("the blocks have %v messages, want 2, 1 and 2", got)
	}
}
