package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

const (
	// format and formatVersion identify the file format.
	format        = "millrace-record"
	formatVersion = 1
	// blockSize is the size at which a block is full, in bytes. A message is never split.
	blockSize = 256 << 10
)

// About describes a file; it is the file's first line.
type About struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Program is the version of the program that wrote it.
	Program string `json:"program,omitempty"`
	// Exported is the time of the export, by the bus's clock.
	Exported time.Time `json:"exported"`
	// Since and Until are the requested bounds; zero: no bound.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Partial names the selections that left out whole streams, such as "kinds=pods"; empty: no
	// stream was left out.
	Partial []string `json:"partial,omitempty"`
	// Streams are the names of the streams, in the order of the file.
	Streams []string `json:"streams"`
	// Read tells people how to read the file.
	Read string `json:"read"`
}

// Stream describes a stream of a file.
type Stream struct {
	Name string `json:"name"`
	// Kind is the kind of a log.
	Kind *kinds.Kind `json:"kind,omitempty"`
	// State is the state of the stream at the export. First and Messages count only what is in
	// the file.
	State bus.State `json:"state"`
	// Consumers are the consumers of the stream at the export.
	Consumers []bus.Consumer `json:"consumers,omitempty"`
}

// index locates everything in a file.
type index struct {
	About   About         `json:"about"`
	Streams []streamIndex `json:"streams"`
}

type streamIndex struct {
	Stream
	Blocks   []block `json:"blocks"`
	Subjects extent  `json:"subjects"`
}

// extent is the position of a frame, and the sum of its compressed bytes.
type extent struct {
	Offset int64  `json:"at"`
	Length int64  `json:"length"`
	Sum    uint64 `json:"sum,string"`
}

type block struct {
	extent
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages int    `json:"messages"`
	// Latest is the latest time of a message in or before the block, in nanoseconds since 1970:
	// unlike the clocks that stamp messages, it never goes back.
	Latest int64 `json:"latest,string"`
}

// The trailer is the last frame of a file; zstd skips it. It has a word to recognize it by, the
// extent of the index, and the index's sum.
const (
	skippable   = 0x184D2A5D
	trailerWord = "millrace"
	trailerSize = 8 + len(trailerWord) + 3*8
)

func encodeTrailer(e extent) []byte {
	out := binary.LittleEndian.AppendUint32(nil, skippable)
	out = binary.LittleEndian.AppendUint32(out, uint32(trailerSize-8))
	out = append(out, trailerWord...)
	for _, n := range []uint64{uint64(e.Offset), uint64(e.Length), e.Sum} {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	return out
}

// decodeTrailer decodes a trailer; ok is false if the text is not one of a file of this size.
func decodeTrailer(text []byte, size int64) (e extent, ok bool) {
	begin := encodeTrailer(extent{})[:8+len(trailerWord)]
	if len(text) != trailerSize || !bytes.Equal(text[:len(begin)], begin) {
		return e, false
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(text[len(begin)+8*i:]) }
	e = extent{int64(n(0)), int64(n(1)), n(2)}
	return e, e.Offset >= 0 && e.Length >= 0 && e.Length <= size && e.Offset <= size-e.Length-int64(trailerSize)
}

func sumOf(packed []byte) uint64 { return xxhash.Sum64(packed) }

// A message in a block is a line with its numbers and its subject, one line for each header, its
// body, and a newline.
const (
	wordStream   = "stream"
	wordMessage  = "message"
	wordSubjects = "subjects"
	numbers      = 4 // sequence, time, size of the headers, size of the body
)

// appendMessage writes a message. It sorts the headers, so that the same messages give the same
// file.
func appendMessage(text []byte, m events.Message) []byte {
	headers := appendHeaders(nil, m.Header)
	text = append(text, wordMessage...)
	for _, n := range [numbers]int64{int64(m.Sequence), m.Time.UnixNano(), int64(len(headers)), int64(len(m.Data))} {
		text = strconv.AppendInt(append(text, ' '), n, 10)
	}
	text = append(append(append(text, ' '), m.Subject...), '\n')
	return append(append(append(text, headers...), m.Data...), '\n')
}

func appendHeaders(text []byte, header map[string][]string) []byte {
	keys := make([]string, 0, len(header))
	for key := range header {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, value := range header[key] {
			text = append(append(append(text, key...), ": "...), escape(value)...)
			text = append(text, '\n')
		}
	}
	return text
}

var (
	escaping   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescaping = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")
)

// escape keeps a header value on one line. The bus carries no values that need it; tests may.
func escape(value string) string {
	if strings.ContainsAny(value, "\\\r\n") {
		return escaping.Replace(value)
	}
	return value
}

var errText = errors.New("the text of a block is not as it should be")

// place is the position of a message in a block's text.
type place struct {
	sequence      uint64
	nanoseconds   int64
	subject       string
	headers, body int // offsets where they begin
	end           int // of the body
}

// nextPlace parses the message that begins at an offset of a text, and gives the offset of the
// next one.
func nextPlace(text []byte, at int) (p place, next int, err error) {
	end := bytes.IndexByte(text[at:], '\n')
	if end < 0 {
		return p, 0, errText
	}
	word, rest, _ := strings.Cut(string(text[at:at+end]), " ")
	var n [numbers]int64
	for i := range n {
		var number string
		var more bool
		if number, rest, more = strings.Cut(rest, " "); !more {
			return p, 0, errText
		}
		if n[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return p, 0, errText
		}
	}
	if n[0] <= 0 {
		return p, 0, errText
	}
	p = place{sequence: uint64(n[0]), nanoseconds: n[1], subject: rest, headers: at + end + 1}
	left := int64(len(text) - p.headers)
	if word != wordMessage || n[2] < 0 || n[3] < 0 || n[2] > left || n[3] > left-n[2] {
		return p, 0, errText
	}
	p.body = p.headers + int(n[2])
	p.end = p.body + int(n[3])
	if p.end >= len(text) || text[p.end] != '\n' {
		return p, 0, errText
	}
	return p, p.end + 1, nil
}

// places finds the messages of a block, and checks them against the index.
func places(text []byte, want block) (stream string, found []place, err error) {
	line, _, ok := bytes.Cut(text, []byte{'\n'})
	word, name, _ := strings.Cut(string(line), " ")
	if !ok || word != wordStream {
		return "", nil, errText
	}
	found = make([]place, 0, min(want.Messages, maxMessages))
	for at, before := len(line)+1, want.First-1; at < len(text); {
		p, next, err := nextPlace(text, at)
		if err != nil {
			return "", nil, err
		}
		switch {
		case at >= blockSize: // the writer would have ended the block
			return "", nil, fmt.Errorf("%w: it goes on where it was full", errText)
		case p.sequence <= before || p.sequence > want.Last:
			return "", nil, fmt.Errorf("%w: message %d comes behind %d, and the last is %d", errText, p.sequence, before, want.Last)
		case p.nanoseconds > want.Latest:
			return "", nil, fmt.Errorf("%w: message %d is of a later time than the block", errText, p.sequence)
		}
		found, at, before = append(found, p), next, p.sequence
	}
	if len(found) != want.Messages || found[0].sequence != want.First || found[len(found)-1].sequence != want.Last {
		return "", nil, fmt.Errorf("%w: it has %d messages, not the %d that it should have", errText, len(found), want.Messages)
	}
	return name, found, nil
}

// message decodes a message. The message shares no memory with the text.
func (p place) message(stream string, text []byte, headersOnly bool) (events.Message, error) {
	m := events.Message{Subject: p.subject, Stream: stream, Sequence: p.sequence, Time: time.Unix(0, p.nanoseconds).UTC()}
	headers := string(text[p.headers:p.body])
	lines := strings.Count(headers, "\n")
	m.Header = make(map[string][]string, lines)
	values := make([]string, lines) // one allocation: each header gets a slice of it
	for rest := headers; rest != ""; {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			return m, errText
		}
		if strings.Contains(value, `\`) {
			value = unescaping.Replace(value)
		}
		if before, ok := m.Header[key]; ok {
			m.Header[key] = append(before, value)
			continue
		}
		values[0] = value
		m.Header[key], values = values[:1:1], values[1:]
	}
	switch {
	case headersOnly:
		m.Header[headerSize] = []string{strconv.Itoa(p.end - p.body)}
	case p.end > p.body:
		m.Data = bytes.Clone(text[p.body:p.end])
	}
	return m, nil
}

// headerSize is the header that a bus sets when it leaves a body out.
const headerSize = "Nats-Msg-Size"
