package listing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Listing lists what a bus has.
type Listing struct {
	on    *conn.Conn
	cache cache
}

// New lists through a connection.
func New(on *conn.Conn) *Listing { return &Listing{on: on} }

// Drop has the next [Listing.Kinds] list the logs with their settings: streams may have been recreated.
func (l *Listing) Drop() { l.cache.drop() }

// listingAge is how long [Listing.Kinds] assumes that streams of the same names are for the same
// kinds. It runs every few seconds. Listing all streams with their settings each time would be
// a tenth of the cost of an idle cluster; listing their names is cheap.
const listingAge = time.Minute

// cache holds the kinds that were found last. It is dropped as soon as streams may have been
// recreated.
type cache struct {
	mu    sync.Mutex
	at    time.Time // zero: there is none
	logs  []string  // the names of the streams, sorted
	kinds []kinds.Kind
	drops int // how often it has been dropped
}

// drop empties the cache.
func (c *cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.drops = time.Time{}, c.drops+1
}

// due reports whether the cached kinds are young enough, and returns the count of drops for keep.
func (c *cache) due() (known bool, drops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.at) < listingAge, c.drops
}

// of returns the listed kinds, and whether the streams' names are still those that were listed.
func (c *cache) of(logs []string) ([]kinds.Kind, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.kinds), !c.at.IsZero() && slices.Equal(c.logs, logs)
}

// keep stores kinds whose listing began at a time, unless the cache has been dropped since.
func (c *cache) keep(begun time.Time, drops int, logs []string, found []kinds.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drops == drops {
		c.at, c.logs, c.kinds = begun, logs, slices.Clone(found)
	}
}

// Kinds are the kinds whose logs exist, sorted by name.
func (l *Listing) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	known, drops := l.cache.due()
	if known {
		logs, err := l.Logs(ctx)
		if err != nil {
			return nil, fmt.Errorf("list streams: %w", err)
		}
		if found, same := l.cache.of(logs); same {
			return found, nil
		}
	}
	begun := time.Now()
	logs, found, err := l.describe(ctx)
	if err != nil {
		return nil, err
	}
	l.cache.keep(begun, drops, logs, found)
	return found, nil
}

// Logs are the names of all log streams, sorted.
func (l *Listing) Logs(ctx context.Context) ([]string, error) {
	request, done := l.on.Guarded(ctx, "STREAM.NAMES")
	defer done()
	var logs []string
	list := l.on.JetStream.StreamNames(request, jetstream.WithStreamListSubject(everyLog))
	for name := range list.Name() {
		logs = append(logs, name)
	}
	slices.Sort(logs)
	return logs, natserr.Translate(request, list.Err())
}

// everyLog is a subject filter that matches all logs.
const everyLog = "ev.>"

// describe lists all logs with their kinds.
func (l *Listing) describe(ctx context.Context) (logs []string, found []kinds.Kind, err error) {
	request, done := l.on.Guarded(ctx, "STREAM.LIST")
	defer done()
	list := l.on.JetStream.ListStreams(request, jetstream.WithStreamListSubject(everyLog))
	for info := range list.Info() {
		logs = append(logs, info.Config.Name)
		kind, ours, err := settings.KindOf(info.Config.Metadata)
		if err != nil {
			return nil, nil, fmt.Errorf("stream %s: %w", info.Config.Name, err)
		}
		if ours && info.Config.Name == subject.LogStream(kind.Name) {
			found = append(found, kind)
		}
	}
	if err := natserr.Translate(request, list.Err()); err != nil {
		return nil, nil, fmt.Errorf("list streams: %w", err)
	}
	slices.Sort(logs)
	slices.SortFunc(found, func(a, b kinds.Kind) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return logs, found, nil
}

// Controllers are the controllers whose turns are kept; see [bus.Archive].
func (l *Listing) Controllers(ctx context.Context) ([]string, error) {
	return l.named(ctx, "turn.>", subject.TurnStream(""))
}

// Shadows are the controllers whose shadows are kept; see [bus.Archive].
func (l *Listing) Shadows(ctx context.Context) ([]string, error) {
	return l.named(ctx, "shadow.>", subject.ShadowStream(""))
}

// named lists the streams with a filter, and returns the part of their names that follows the
// prefix.
func (l *Listing) named(ctx context.Context, subjects, prefix string) ([]string, error) {
	request, done := l.on.Guarded(ctx, "STREAM.NAMES")
	defer done()
	var found []string
	names := l.on.JetStream.StreamNames(request, jetstream.WithStreamListSubject(subjects))
	for name := range names.Name() {
		if controller, ours := strings.CutPrefix(name, prefix); ours {
			found = append(found, controller)
		}
	}
	if err := natserr.Translate(request, names.Err()); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	slices.Sort(found)
	return found, nil
}
