package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// readIndex reads the trailer and the index of a file.
func (f *File) readIndex(size int64) error {
	tail := make([]byte, trailerSize)
	if size < int64(trailerSize) {
		return f.cut(size)
	}
	if _, err := f.from.ReadAt(tail, size-int64(trailerSize)); err != nil {
		return fmt.Errorf("read %s: %w", f.name, err)
	}
	at, ok := decodeTrailer(tail, size)
	if !ok {
		return f.cut(size)
	}
	text, err := f.frame(at, maxIndex)
	if errors.Is(err, errSum) {
		return f.cut(size)
	}
	var found index
	if err == nil {
		found, err = decodeIndex(text)
	}
	switch {
	case err != nil:
	case found.About.Version > formatVersion:
		return fmt.Errorf("%s is of version %d of the format, and this program reads up to %d: use a newer one", f.name, found.About.Version, formatVersion)
	default:
		err = found.checkExtents(at.Offset)
	}
	if err != nil {
		return fmt.Errorf("the index of %s: %w: %w; export the record again", f.name, events.ErrDamaged, err)
	}
	f.about, f.streams = found.About, make(map[string]*stream, len(found.Streams))
	for _, s := range found.Streams {
		f.streams[s.Name] = &stream{streamIndex: s}
	}
	return nil
}

// decodeIndex decodes an index; this takes up to a few times the memory of its text.
func decodeIndex(text []byte) (found index, err error) {
	if err := checkShape(text); err != nil {
		return found, err
	}
	var parts struct {
		About   About             `json:"about"`
		Streams []json.RawMessage `json:"streams"`
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return found, fmt.Errorf("%w: %w", errIndex, err)
	}
	if len(parts.Streams) > maxStreams {
		return found, fmt.Errorf("%w: it has %d streams, the most is %d", errIndex, len(parts.Streams), maxStreams)
	}
	found = index{About: parts.About, Streams: make([]streamIndex, len(parts.Streams))}
	names := make(map[string]bool, len(parts.Streams))
	for n := range found.Streams {
		s := &found.Streams[n]
		if err := json.Unmarshal(parts.Streams[n], s); err != nil {
			return found, fmt.Errorf("%w: stream %d: %w", errIndex, n, err)
		}
		if names[s.Name] || s.Name == "" || strings.ContainsAny(s.Name, "\r\n") {
			return found, fmt.Errorf("%w: stream %d is named %q", errIndex, n, s.Name)
		}
		if names[s.Name] = true; s.Kind != nil && s.Name != subject.LogStream(s.Kind.Name) {
			return found, fmt.Errorf("%w: stream %q is of the kind %q", errIndex, s.Name, s.Kind.Name)
		}
		if err := s.check(); err != nil {
			return found, fmt.Errorf("stream %q: %w", s.Name, err)
		}
	}
	return found, nil
}
