package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A client cannot choose the sequence and time of a message that it stores; but a server can
// restore a stream from a backup. So an import writes a backup, in the server's own format (of
// 2.15 and later), and has the server restore it.

// importedKey is the metadata key of an imported stream, for the state of the original.
// Services refuse such a stream, because its settings differ from theirs.
const importedKey = "millrace.imported"

// originalState is the state of the original stream of an imported one.
type originalState struct {
	Now           time.Time `json:"now"`
	Created       time.Time `json:"created"`
	CompleteSince uint64    `json:"whole,omitempty"`
	Begins        time.Time `json:"begins,omitzero"`
}

// Original makes the state of an imported stream that of its original.
func Original(s *bus.State, metadata map[string]string) {
	var was originalState
	if json.Unmarshal([]byte(metadata[importedKey]), &was) != nil {
		return // not an imported stream
	}
	s.Created, s.Now = was.Created, was.Now
	if s.Whole = was.CompleteSince; was.CompleteSince > 0 {
		s.Begins = was.Begins
	}
}

// ErrServed: the bus has streams that services created.
var ErrServed = errors.New("services use this bus, or did: import into one of its own (millrace bus --data-dir=ANOTHER --nats-listen=127.0.0.1:4322)")

// MayImport makes sure that the bus of the connection has imported streams only, so that nothing is put beside
// those of services.
//
// Errors: [ErrServed]; the bus cannot be asked.
func MayImport(ctx context.Context, on *conn.Conn) error {
	request, done := on.Guarded(ctx, "STREAM.LIST")
	defer done()
	list := on.JetStream.ListStreams(request)
	var used error
	for info := range list.Info() {
		if _, was := info.Config.Metadata[importedKey]; !was && used == nil {
			used = fmt.Errorf("%w: it has the stream %s", ErrServed, info.Config.Name)
		}
	}
	return cmp.Or(natserr.Translate(request, list.Err()), used)
}

// importable reports whether a name is that of a log (of the kind), or of another stream of the
// record.
func importable(name string, kind *kinds.Kind) bool {
	if kind != nil {
		return name == subject.LogStream(kind.Name) && plainName.MatchString(kind.Name.Token())
	}
	for _, prefix := range []string{subject.TurnStream(""), subject.OutcomeStream(""), subject.ShadowStream("")} {
		if controller, ours := strings.CutPrefix(name, prefix); ours {
			return plainName.MatchString(controller)
		}
	}
	return name == subject.NotaryStream
}

// plainName is what names of kinds and controllers consist of.
var plainName = regexp.MustCompile(`^[a-z0-9_-]{1,253}$`)

// fits makes sure that a message could have been stored in a stream, and that the server reads
// it as it was in the file.
func fits(stream string, m events.Message) error {
	if !subject.Matches(importSubject(stream), m.Subject) || strings.ContainsAny(m.Subject, "*> \t\r\n") {
		return fmt.Errorf("message %d is on the subject %q, which %s has not", m.Sequence, m.Subject, stream)
	}
	for key, values := range m.Header {
		if strings.ContainsAny(key+strings.Join(values, ""), "\r\n") {
			return fmt.Errorf("message %d has a header of more than one line", m.Sequence)
		}
	}
	return nil
}

// Import creates on the bus of the connection a stream with the messages of another one, under their sequences and times.
// The server keeps an imported stream for ever. Nothing expires in it, and no service works on
// it.
//
// Errors: the name is not that of a stream of the record; the stream exists already; the
// original cannot be read, or the stream cannot be created.
func Import(ctx context.Context, on *conn.Conn, policy settings.Policy, from bus.Archive, name string, kind *kinds.Kind) error {
	if !importable(name, kind) {
		return fmt.Errorf("import %q: it is no stream of a record", name)
	}
	if _, err := on.Info(ctx, name); !errors.Is(err, bus.ErrNoStream) {
		if err == nil {
			err = fmt.Errorf("it is there already")
		}
		return fmt.Errorf("import %s: %w", name, err)
	}
	was, err := from.StreamState(ctx, name)
	if err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	i := &restore{from: from, into: on, settings: readOnly(policy, name, kind, was)}
	if err := i.restore(ctx, was); err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	return nil
}

// readOnly is the settings of an imported stream.
func readOnly(policy settings.Policy, name string, kind *kinds.Kind, was bus.State) jetstream.StreamConfig {
	c := policy.Imported(name, importSubject(name), kind)
	text, _ := json.Marshal(originalState{was.Now, was.Created, was.Whole, was.Begins}) // times and a number: cannot fail
	c.Metadata[importedKey] = string(text)
	return c
}

// importSubject is a filter for every subject of a stream.
func importSubject(name string) string {
	if kind, ok := subject.KindOfStream(name); ok {
		return subject.Log(kind)
	}
	word, of, _ := strings.Cut(name, "_")
	if of == "" {
		return strings.ToLower(word) + ".>"
	}
	return strings.ToLower(word) + "." + of + ".>"
}

type restore struct {
	from     bus.Archive
	into     *conn.Conn
	settings jetstream.StreamConfig
}

// chunkSize is the size in bytes of one piece of a backup.
const chunkSize = 256 << 10

// restore sends the backup to the server while write produces it.
func (i *restore) restore(ctx context.Context, state bus.State) error {
	var begun server.JSApiStreamRestoreResponse
	request := struct {
		Config jetstream.StreamConfig `json:"config"`
		State  server.StreamState     `json:"state"`
	}{i.settings, standing(state)}
	text, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	if err := i.into.Ask(ctx, i.into.APISubject(server.JSApiStreamRestoreT, i.settings.Name), text, &begun, &begun.ApiResponse); err != nil {
		return err
	}
	backup, writing := io.Pipe()
	defer backup.Close()
	go func() { writing.CloseWithError(i.write(ctx, writing, state)) }()
	for chunk := make([]byte, chunkSize); ; {
		n, err := io.ReadFull(backup, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		var done server.JSApiStreamCreateResponse // empty until the end, or an error
		if n > 0 {
			if err := i.into.Ask(ctx, begun.DeliverSubject, chunk[:n], &done, &done.ApiResponse); err != nil {
				return err
			}
		}
		if err != nil { // an empty chunk ends the backup
			return i.into.Ask(ctx, begun.DeliverSubject, nil, &done, &done.ApiResponse)
		}
	}
}

func standing(s bus.State) server.StreamState {
	return server.StreamState{Msgs: s.Messages, FirstSeq: s.First, LastSeq: s.Last}
}

// write writes the backup: the stream's state, its messages, and an empty entry.
func (i *restore) write(ctx context.Context, to io.Writer, state bus.State) error {
	packed := s2.NewWriter(to)
	out := archive.NewWriter(packed)
	text, err := json.Marshal(standing(state))
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	entry := func(h archive.Header, parts ...[]byte) error {
		err := out.WriteHeader(&h)
		for _, part := range parts {
			if err == nil {
				_, err = out.Write(part)
			}
		}
		return err
	}
	if err := entry(archive.Header{Name: "state.json", Timestamp: state.Now.UnixNano(), PayloadSize: int64(len(text))}, text); err != nil {
		return err
	}
	err = i.from.Read(ctx, bus.Passage{Stream: i.settings.Name}, func(batch []events.Message) error {
		for _, m := range batch {
			if err := fits(i.settings.Name, m); err != nil {
				return err
			}
			header := rawHeader(m.Header)
			err := entry(archive.Header{
				Name: m.Subject, Timestamp: m.Time.UnixNano(), Sequence: m.Sequence,
				HeaderSize: int64(len(header)), PayloadSize: int64(len(m.Data)),
			}, header, m.Data)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(entry(archive.Header{}), out.Close(), packed.Close())
}

// rawHeader encodes headers in the wire format.
func rawHeader(header map[string][]string) []byte {
	if len(header) == 0 {
		return nil
	}
	text := []byte("NATS/1.0\r\n")
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[key] {
			text = append(append(append(append(text, key...), ": "...), value...), "\r\n"...)
		}
	}
	return append(text, "\r\n"...)
}
