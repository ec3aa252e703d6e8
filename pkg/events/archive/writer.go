package archive

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/pkg/events"
)

// Writer writes a file: one stream after the other, the messages of each in order. After an
// error it writes nothing more, and Close returns the error again.
type Writer struct {
	out   io.Writer
	at    int64
	pack  *zstd.Encoder
	index index
	err   error

	stream   *streamIndex // the current stream
	text     []byte
	block    block
	subjects map[string]*posting
}

// posting is the last message of a subject, and the blocks that contain the subject.
type posting struct {
	last   uint64
	blocks []int
}

// NewWriter begins a file. It fills in the format fields of about.
func NewWriter(out io.Writer, about About) (*Writer, error) {
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(2*blockSize))
	if err != nil {
		return nil, fmt.Errorf("set up zstd: %w", err)
	}
	about.Format, about.Version = format, formatVersion
	about.Read = "zstd -dc shows this file as text; millrace reads it with --record=FILE: history, get, diff, why, tail, replay, verify"
	w := &Writer{out: out, pack: pack, index: index{About: about}}
	w.frameJSON(about)
	return w, w.err
}

// Begin begins a stream. It computes the number of messages and the first sequence, whatever the
// stream's state says.
func (w *Writer) Begin(s Stream) error {
	w.endStream()
	w.index.Streams = append(w.index.Streams, streamIndex{Stream: s})
	w.stream = &w.index.Streams[len(w.index.Streams)-1]
	w.stream.State.First, w.stream.State.Messages = s.State.Last+1, 0
	w.subjects, w.block = map[string]*posting{}, block{}
	return w.err
}

// Add writes a message of the current stream.
func (w *Writer) Add(m events.Message) error {
	if w.err != nil {
		return w.err
	}
	state := &w.stream.State
	if state.Messages > 0 && m.Sequence <= w.last() || m.Sequence > state.Last {
		w.err = fmt.Errorf("write message %d of %s: it comes after %d, and the stream ends with %d", m.Sequence, w.stream.Name, w.last(), state.Last)
		return w.err
	}
	if state.Messages == 0 {
		state.First = m.Sequence
	}
	state.Messages++
	if len(w.text) == 0 {
		w.text = append(w.text, wordStream+" "+w.stream.Name+"\n"...)
		w.block = block{First: m.Sequence, Latest: w.block.Latest}
	}
	w.text = appendMessage(w.text, m)
	w.block.Last = m.Sequence
	w.block.Messages++
	w.block.Latest = max(w.block.Latest, m.Time.UnixNano())
	w.post(m)
	if len(w.text) >= blockSize {
		w.endBlock()
	}
	return w.err
}

// last is the last sequence written to the stream.
func (w *Writer) last() uint64 { return w.block.Last }

func (w *Writer) post(m events.Message) {
	p := w.subjects[m.Subject]
	if p == nil {
		p = &posting{}
		w.subjects[m.Subject] = p
	}
	p.last = m.Sequence
	if n := len(w.stream.Blocks); len(p.blocks) == 0 || p.blocks[len(p.blocks)-1] != n {
		p.blocks = append(p.blocks, n)
	}
}

func (w *Writer) endBlock() {
	if len(w.text) == 0 {
		return
	}
	w.bound(len(w.text), maxBlock, "a message of "+w.stream.Name+" is too large: leave its kind or controller out")
	w.block.extent = w.frame(w.text)
	w.stream.Blocks = append(w.stream.Blocks, w.block)
	w.text = w.text[:0]
}

func (w *Writer) endStream() {
	if w.stream == nil {
		return
	}
	w.endBlock()
	text := encodeSubjects(w.stream.Name, w.subjects)
	w.bound(len(text), maxList, w.stream.Name+" has too many subjects: export a shorter stretch with --since or --until")
	w.stream.Subjects = w.frame(text)
	w.stream = nil
}

// encodeSubjects writes one line for each subject: its last message, the blocks that contain it,
// each as the distance to the previous one, and the subject.
func encodeSubjects(stream string, subjects map[string]*posting) []byte {
	names := make([]string, 0, len(subjects))
	for name := range subjects {
		names = append(names, name)
	}
	slices.Sort(names)
	text := []byte(wordSubjects + " " + stream + "\n")
	for _, name := range names {
		p := subjects[name]
		text = strconv.AppendUint(text, p.last, 10)
		before := 0
		for _, n := range p.blocks {
			text = strconv.AppendInt(append(text, ' '), int64(n-before), 10)
			before = n
		}
		text = append(append(append(text, ' '), name...), '\n')
	}
	return text
}

func (w *Writer) frameJSON(value any) extent {
	text, err := json.Marshal(value)
	if err != nil {
		w.err = fmt.Errorf("write the file: %w", err)
		return extent{}
	}
	return w.frame(append(text, '\n'))
}

func (w *Writer) frame(text []byte) extent {
	packed := w.pack.EncodeAll(text, nil)
	e := extent{w.at, int64(len(packed)), sumOf(packed)}
	w.write(packed)
	return e
}

// bound rejects a part that is too large for readers, which must accept files from unknown
// writers.
func (w *Writer) bound(size, most int, otherwise string) {
	if size > most && w.err == nil {
		w.err = fmt.Errorf("write the file: %s (%d bytes, the most is %d)", otherwise, size, most)
	}
}

func (w *Writer) write(text []byte) {
	if w.err != nil {
		return
	}
	n, err := w.out.Write(text)
	if w.at += int64(n); err != nil {
		w.err = fmt.Errorf("write the file: %w", err)
	}
}

// Close writes the index and the trailer. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.endStream()
	text, err := json.Marshal(w.index)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("write the file: %w", err)
	}
	w.bound(len(text), maxIndex, "there are too many messages: export a shorter stretch with --since or --until, or fewer --kinds")
	w.write(encodeTrailer(w.frame(append(text, '\n'))))
	return w.err
}

// Streams are the streams written so far, with their counts.
func (w *Writer) Streams() []Stream {
	out := make([]Stream, len(w.index.Streams))
	for i, s := range w.index.Streams {
		out[i] = s.Stream
	}
	return out
}

// Size is the number of bytes written.
func (w *Writer) Size() int64 { return w.at }
