package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// listingAge is how long [Bus.Kinds] assumes that streams of the same names are for the same
// kinds. It runs every few seconds. Listing all streams with their settings each time would be
// a tenth of the cost of an idle cluster; listing their names is cheap.
const listingAge = time.Minute

// listing caches the kinds that were found last. The connection drops it as soon as streams may
// have been recreated.
type listing struct {
	mu    sync.Mutex
	at    time.Time // zero: there is none
	logs  []string  // the names of the streams, sorted
	kinds []kinds.Kind
	drops int // how often it has been forgotten
}

// drop forgets the listing.
func (l *listing) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.drops = time.Time{}, l.drops+1
}

// due reports whether the listing is young enough, and returns the count of drops for keep.
func (l *listing) due() (known bool, drops int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.at) < listingAge, l.drops
}

// of returns the listed kinds, and whether the streams' names are still those of the listing.
func (l *listing) of(logs []string) ([]kinds.Kind, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kinds), !l.at.IsZero() && slices.Equal(l.logs, logs)
}

// keep stores a listing that began at a time, unless the listing has been dropped since.
func (l *listing) keep(begun time.Time, drops int, logs []string, found []kinds.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drops == drops {
		l.at, l.logs, l.kinds = begun, logs, slices.Clone(found)
	}
}

// Kinds are the kinds whose logs exist, sorted by name.
func (b *Bus) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	known, drops := b.listing.due()
	if known {
		logs, err := b.logs(ctx)
		if err != nil {
			return nil, fmt.Errorf("list streams: %w", err)
		}
		if found, same := b.listing.of(logs); same {
			return found, nil
		}
	}
	begun := time.Now()
	logs, found, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	b.listing.keep(begun, drops, logs, found)
	return found, nil
}

// logs are the names of all log streams, sorted.
func (b *Bus) logs(ctx context.Context) ([]string, error) {
	request, done := b.guarded(ctx, "STREAM.NAMES")
	defer done()
	var logs []string
	list := b.js.StreamNames(request, jetstream.WithStreamListSubject(everyLog))
	for name := range list.Name() {
		logs = append(logs, name)
	}
	slices.Sort(logs)
	return logs, natserr.Translate(request, list.Err())
}

// everyLog is a subject filter that matches all logs.
const everyLog = "ev.>"

// describe lists all logs with their kinds.
func (b *Bus) describe(ctx context.Context) (logs []string, found []kinds.Kind, err error) {
	request, done := b.guarded(ctx, "STREAM.LIST")
	defer done()
	list := b.js.ListStreams(request, jetstream.WithStreamListSubject(everyLog))
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
