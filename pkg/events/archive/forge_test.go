package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// forgery is a file made by an attacker: parts of any content, with matching sums.
type forgery struct {
	bytes.Buffer
	pack *zstd.Encoder
}

func newForgery(t testing.TB) *forgery {
	t.Helper()
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	if err != nil {
		t.Fatal(err)
	}
	f := &forgery{pack: pack}
	f.frame([]byte(`{"format":"millrace-record","version":1}` + "\n"))
	return f
}

func (f *forgery) frame(text []byte) extent { return f.raw(f.pack.EncodeAll(text, nil)) }

func (f *forgery) raw(packed []byte) extent {
	e := extent{int64(f.Len()), int64(len(packed)), sumOf(packed)}
	f.Write(packed)
	return e
}

// close writes an index and the trailer.
func (f *forgery) close(index []byte) []byte {
	at := f.frame(index)
	f.Write(encodeTrailer(at))
	return f.Bytes()
}

const forgedStream = "TURN_c"

// part is the index entry of a stream with one block of messages.
func part(messages int, at, subjects extent) streamIndex {
	s := streamIndex{Stream: Stream{Name: forgedStream}, Subjects: subjects}
	s.State = bus.State{First: 1, Last: uint64(messages), Messages: uint64(messages)}
	s.Blocks = []block{{extent: at, First: 1, Last: uint64(messages), Messages: messages, Latest: 1 << 62}}
	return s
}

func encodeIndex(t testing.TB, streams ...streamIndex) []byte {
	t.Helper()
	x := index{About: About{Format: format, Version: formatVersion}, Streams: streams}
	for _, s := range streams {
		x.About.Streams = append(x.About.Streams, s.Name)
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// forge writes a file with two blocks of one message each, in valid form, which a test then
// modifies.
func forge(t testing.TB, bend func(s *streamIndex)) []byte {
	t.Helper()
	f := newForgery(t)
	s := part(1, f.frame([]byte("stream TURN_c\nmessage 1 5 0 2 turn.c.act.a\n{}\n")), extent{})
	s.Blocks = append(s.Blocks, block{extent: f.frame([]byte("stream TURN_c\nmessage 2 5 0 2 turn.c.act.b\n{}\n")), First: 2, Last: 2, Messages: 1, Latest: 1 << 62})
	s.State.Last, s.State.Messages = 2, 2
	s.Subjects = f.frame([]byte("subjects TURN_c\n1 0 turn.c.act.a\n2 1 turn.c.act.b\n"))
	bend(&s)
	return f.close(encodeIndex(t, s))
}

// readAll reads a file in every possible way.
func readAll(text []byte) error {
	f, err := New("the file", bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return err
	}
	defer f.Close()
	ctx := context.Background()
	var failed error
	keep := func(err error) { failed = errors.Join(failed, err) }
	have, err := f.Kinds(ctx)
	keep(err)
	for _, kind := range have {
		_, err := record.New(f).At(ctx, kind, "", record.Moment{Time: time.Unix(0, 1<<61)})
		keep(err)
	}
	for _, s := range f.Streams() {
		keep(readStream(ctx, f, s.Name))
	}
	return failed
}

func readStream(ctx context.Context, f *File, name string) error {
	state, err := f.StreamState(ctx, name)
	if err != nil {
		return err
	}
	var read uint64
	var last events.Message
	var failed error
	err = f.Read(ctx, bus.Passage{Stream: name}, func(batch []events.Message) error {
		read += uint64(len(batch))
		for _, m := range batch {
			last = m
			_, _, err := f.Last(ctx, name, m.Subject)
			failed = errors.Join(failed, err)
		}
		return nil
	})
	if err == nil && read != state.Messages && name == forgedStream {
		err = fmt.Errorf("%s has %d messages and says %d", name, read, state.Messages)
	}
	_, _, at := f.At(ctx, name, last.Sequence)
	_, _, next := f.Next(ctx, name, ">", 2)
	filtered := f.Read(ctx, bus.Passage{Stream: name, Subject: "turn.*.>", HeadersOnly: true}, func([]events.Message) error { return nil })
	return errors.Join(err, failed, at, next, filtered)
}

var somePods = kinds.Pods.Kind
