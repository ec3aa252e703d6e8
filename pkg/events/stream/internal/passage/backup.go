package passage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/audit"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// A consumer delivers a stream one message at a time: five goroutines in a row wake for each,
// and the client library parses its headers. A backup of the stream has the same messages, in
// the same order, packed together and sent in large pieces. So a reader of a long passage reads
// it from a backup, in the server's own format (of 2.15 and later), which it does not keep.
// When the backup fails, the passage stays where it is, and a consumer delivers the rest.

const (
	// minBackupBytes is the least number of messages of a stream that is read from a backup.
	minBackupBytes = 2000
	// backupChunk is the size of one piece, and maxBackupAhead bounds the pieces that are in
	// flight or wait for the handler. Both are in compressed bytes.
	backupChunk    = 128 << 10
	maxBackupAhead = 4 << 20
	// backupVersion is the first server whose backups hold messages, not files.
	backupVersion = "2.15"
	// backupEntry is more than the largest message, in bytes.
	backupEntry = 256 << 20
)

// backedUp reports whether to read a passage from a backup, which always has the whole stream:
// only if at least half of the stream is wanted.
func (r *read) backedUp(at bus.State) bool {
	if !r.backups || r.on.APIPrefix != "" || r.mayNotBackUp.Load() || audit.Older(r.on.NATS.ConnectedServerVersion(), backupVersion) {
		return false
	}
	if r.HeadersOnly || r.Subject != "" || r.From == 0 && !r.Since.IsZero() || at.Messages < minBackupBytes {
		return false
	}
	from := max(r.From, at.First)
	return from <= r.To && 2*(r.To-from+1) >= at.Last-at.First+1
}

// backup reads the passage from a backup of its stream. After an error, From is the sequence at
// which to go on.
func (r *read) backup(ctx context.Context) error {
	shaken := r.on.MayHaveMissed()
	request, done := r.on.Guarded(ctx, r.Stream)
	defer done()
	p := &backupReader{ctx: request, on: r.on, shaken: shaken, incoming: make(chan *nats.Msg, maxBackupAhead/backupChunk+2)}
	inbox := r.on.NATS.NewInbox()
	sub, err := r.on.NATS.ChanSubscribe(inbox, p.incoming)
	if err != nil {
		return natserr.Translate(request, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	text, err := json.Marshal(server.JSApiStreamSnapshotRequest{
		DeliverSubject: inbox, NoConsumers: true, ChunkSize: backupChunk, WindowSize: maxBackupAhead,
	})
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	asking, cancel := context.WithTimeout(request, readStuck)
	defer cancel()
	var begun server.JSApiStreamSnapshotResponse
	if err := r.on.Ask(asking, r.on.APISubject(server.JSApiStreamSnapshotT, r.Stream), text, &begun, &begun.ApiResponse); err != nil {
		return natserr.Translate(request, err)
	}
	err = r.unpack(archive.NewReader(bufio.NewReaderSize(s2.NewReader(p), backupChunk)))
	var own *delivery.HandlerError
	if err != nil && p.err != nil && !errors.As(err, &own) {
		return fmt.Errorf("receive a backup: %w", natserr.Translate(request, p.err)) // the reader that unpacks it only reports that it is incomplete
	}
	return err
}

// unpack hands over the messages of the passage in a backup. The backup begins with an entry
// for the stream's state, and ends with an entry without a name.
func (r *read) unpack(in *archive.Reader) error {
	batch := make([]events.Message, 0, readBatch)
	for {
		entry, err := in.Next()
		if err != nil {
			return fmt.Errorf("read a backup: %w", err)
		}
		switch {
		case entry.Name == "":
			_, err := r.deliver(batch)
			return err
		case entry.Sequence < max(r.From, 1):
			continue
		}
		m, err := unpacked(r.Stream, entry, in)
		if err != nil {
			return fmt.Errorf("read message %d from a backup: %w", entry.Sequence, err)
		}
		if batch = append(batch, m); len(batch) == readBatch {
			// deliver drops messages beyond the passage, but unpack reads the backup to its end:
			// the server logs a backup that is not read to its end as failed.
			if _, err := r.deliver(batch); err != nil {
				return err
			}
			batch = make([]events.Message, 0, readBatch)
		}
	}
}

// unpacked is the message of an entry.
func unpacked(stream string, entry *archive.Header, in io.Reader) (m events.Message, err error) {
	if entry.HeaderSize+entry.PayloadSize > backupEntry {
		return m, fmt.Errorf("it is said to have %d bytes", entry.HeaderSize+entry.PayloadSize)
	}
	raw := make([]byte, entry.HeaderSize+entry.PayloadSize)
	if _, err := io.ReadFull(in, raw); err != nil {
		return m, err
	}
	m = events.Message{Subject: entry.Name, Stream: stream, Sequence: entry.Sequence, Time: time.Unix(0, entry.Timestamp)}
	if entry.HeaderSize > 0 {
		m.Header, err = headersOf(string(raw[:entry.HeaderSize]))
	}
	m.Data = raw[entry.HeaderSize:]
	return m, err
}

// headersOf parses headers in the wire format. It leaves unusual ones, such as a header that
// occurs twice, to the client library.
func headersOf(text string) (map[string][]string, error) {
	rest, plain := strings.CutPrefix(text, "NATS/1.0\r\n")
	lines := strings.Count(rest, "\n") - 1 // the last one is empty
	header, values := make(map[string][]string, max(lines, 0)), make([]string, max(lines, 0))
	for i := 0; plain && i < lines; i++ {
		end := strings.IndexByte(rest, '\n')
		colon := strings.IndexByte(rest[:end], ':')
		if plain = colon > 0 && rest[end-1] == '\r'; plain {
			values[i] = strings.TrimLeft(rest[colon+1:end-1], " \t")
			header[rest[:colon]] = values[i : i+1 : i+1]
			rest = rest[end+1:]
		}
	}
	if !plain || rest != "\r\n" || len(header) != lines {
		return nats.DecodeHeadersMsg([]byte(text))
	}
	return header, nil
}

// backupReader is an incoming backup.
type backupReader struct {
	ctx       context.Context
	on        *conn.Conn
	shaken    <-chan struct{}
	incoming  chan *nats.Msg
	count     int
	remaining []byte // of the last piece
	err       error  // why nothing follows
}

func (p *backupReader) Read(into []byte) (int, error) {
	for len(p.remaining) == 0 {
		if p.err == nil {
			p.err = p.next()
		}
		if p.err != nil {
			return 0, p.err
		}
	}
	n := copy(into, p.remaining)
	p.remaining = p.remaining[n:]
	return n, nil
}

// next takes the next piece; io.EOF is the end.
func (p *backupReader) next() error {
	patience := time.NewTimer(readStuck)
	defer patience.Stop()
	select {
	case <-p.shaken: // takes precedence over the pieces that have already arrived
		return delivery.ErrMayHaveMissed
	default:
	}
	var m *nats.Msg
	select {
	case m = <-p.incoming:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-p.on.Closed():
		return bus.ErrClosed
	case <-p.shaken:
		return delivery.ErrMayHaveMissed
	case <-patience.C:
		return fmt.Errorf("nothing came for %v", readStuck)
	}
	if status := m.Header.Get("Status"); status != "" && status != "204" {
		return fmt.Errorf("the server gave up: %s %s", status, m.Header.Get("Description"))
	}
	if len(m.Data) == 0 {
		return io.EOF
	}
	if m.Reply != "" { // all pieces but the last are numbered, and need an answer
		if p.count++; m.Reply[strings.LastIndexByte(m.Reply, '.')+1:] != strconv.Itoa(p.count) {
			return fmt.Errorf("%w: %s is not piece %d", delivery.ErrMayHaveMissed, m.Reply, p.count)
		}
		if err := m.Respond(nil); err != nil {
			return err
		}
	}
	p.remaining = m.Data
	return nil
}

// noBackup records why a backup failed.
func (r *read) noBackup(err error) {
	var refusal *natserr.Refusal
	if errors.As(err, &refusal) {
		r.mayNotBackUp.Store(true)
	}
	r.on.Log.Debug("cannot read a stream from a backup", "stream", r.Stream, "from", r.From, "because", err)
}
