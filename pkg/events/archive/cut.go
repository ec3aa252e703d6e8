package archive

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/pkg/events"
)

// Cut is the error for a file whose end is missing or damaged.
type Cut struct {
	Name string
	Size int64
	// Readable are the parts of streams that can be read.
	Readable []Stretch
}

// Stretch is a part of a stream.
type Stretch struct {
	Stream      string
	First, Last uint64
	Messages    int
	Until       time.Time // of the last message
}

func (c *Cut) Error() string {
	text := fmt.Sprintf("%s is cut off or damaged at its end (it has %d bytes): copy or export it again; ", c.Name, c.Size)
	if len(c.Readable) == 0 {
		return text + "nothing of it can be read"
	}
	last, before := c.Readable[len(c.Readable)-1], 0
	for _, s := range c.Readable[:len(c.Readable)-1] {
		before += s.Messages
	}
	return fmt.Sprintf("%s`zstd -dc` shows what is left: %d messages of %d streams, and of %s %d to %d (%d messages, until %s)",
		text, before, len(c.Readable)-1, last.Stream, last.First, last.Last, last.Messages, last.Until.UTC().Format(time.RFC3339))
}

// cut reads a file from its beginning as far as possible.
func (f *File) cut(size int64) error {
	in, err := zstd.NewReader(io.NewSectionReader(f.from, 0, size), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxWindow))
	if err != nil {
		return fmt.Errorf("set up zstd: %w", err)
	}
	defer in.Close()
	text := bufio.NewReaderSize(io.LimitReader(in, maxRatio*size), maxLine)
	line, err := readLine(text)
	var about About
	if err != nil || json.Unmarshal([]byte(line), &about) != nil || about.Format != format {
		return fmt.Errorf("%s is %w: millrace export writes one", f.name, ErrNoRecord)
	}
	return &Cut{Name: f.name, Size: size, Readable: readable(text)}
}

// readable are the messages up to the end of the text, or to the first invalid line.
func readable(text *bufio.Reader) (found []Stretch) {
	for {
		line, err := readLine(text)
		if err != nil {
			return drop(found)
		}
		word, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case wordStream:
			if len(found) == 0 || found[len(found)-1].Stream != name {
				if found = drop(found); len(found) == maxStreams {
					return found
				}
				found = append(found, Stretch{Stream: name})
			}
		case wordMessage:
			if len(found) == 0 {
				return found
			}
			m, err := readMessage(text, line, found[len(found)-1].Stream)
			if err != nil {
				return drop(found)
			}
			found[len(found)-1].add(m)
		case wordSubjects:
			if err := passLines(text); err != nil {
				return found
			}
		default:
			return found
		}
	}
}

func (s *Stretch) add(m events.Message) {
	if s.Messages == 0 {
		s.First = m.Sequence
	}
	s.Last, s.Until = m.Sequence, m.Time
	s.Messages++
}

// readLine reads a line, which may be at most as long as the buffer.
func readLine(text *bufio.Reader) (string, error) {
	line, err := text.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("read a line: %w", err)
	}
	return string(line), nil
}

// drop removes a last stream without messages.
func drop(found []Stretch) []Stretch {
	if n := len(found); n > 0 && found[n-1].Messages == 0 {
		return found[:n-1]
	}
	return found
}

// readMessage reads the rest of a message after its first line.
func readMessage(text *bufio.Reader, line, stream string) (m events.Message, err error) {
	var sequence uint64
	var at int64
	var headers, body int
	var on string
	if _, err := fmt.Sscanf(line, wordMessage+" %d %d %d %d %s\n", &sequence, &at, &headers, &body, &on); err != nil || headers < 0 || body < 0 || headers > maxBlock || body > maxBlock {
		return m, errText
	}
	rest := make([]byte, 0, min(headers+body+1, blockSize))
	for size := headers + body + 1; len(rest) < size; {
		part := make([]byte, min(size-len(rest), blockSize))
		n, err := io.ReadFull(text, part)
		if rest = append(rest, part[:n]...); err != nil {
			return m, fmt.Errorf("read message %d: %w", sequence, err)
		}
	}
	p, _, err := nextPlace(append([]byte(line), rest...), 0)
	if err != nil {
		return m, err
	}
	if m, err = p.message(stream, append([]byte(line), rest...), false); err != nil {
		return m, err
	}
	return m, events.Verify(m)
}

// passLines skips the list of the subjects of a stream, whose lines begin with numbers.
func passLines(text *bufio.Reader) error {
	for {
		next, err := text.Peek(1)
		if err != nil || next[0] < '0' || next[0] > '9' {
			return err
		}
		if _, err := readLine(text); err != nil {
			return errors.Join(errText, err)
		}
	}
}
