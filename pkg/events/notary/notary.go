package notary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Options of a notary.
type Options struct {
	// Signer is the key that signs.
	Signer note.Signer
	// Known are the keys whose pages the notary continues, including its own.
	Known note.Verifiers
	// Every is how often the notary checks the streams; 0 means 10 s.
	Every time.Duration
	// Memory stores what was signed outside of the bus; nil: it is not stored, and a restarted
	// notary trusts what it finds on the bus.
	Memory Memory
	// BeginAnew makes the notary begin the record anew, once, if signed pages or lists are
	// missing. The first pages say so.
	BeginAnew bool
	// Log may be nil: then the notary does not log.
	Log *slog.Logger
}

const (
	defaultEvery = 10 * time.Second
	// quiet is the time after which the notary signs an unchanged stream again, so that its last
	// page never expires and every reader sees that a notary is running.
	quiet = time.Hour
	// margin is how much longer pages are kept than the messages that they cover.
	margin = 24 * time.Hour
	// pageEntries limits the entries of a page.
	pageEntries = 2000
)

// Notary signs the streams of a bus. It needs permission to read, and to publish on the notary's
// subjects.
type Notary struct {
	bus bus.NotaryBus
	Options

	heads map[string]*head
	lists *lists // nil: to be read from the bus
	own   remembered
	// recalled: own has been read; changed: own has to be saved.
	recalled, changed bool
	anew              string        // the Break of the first pages of a record that was begun anew
	kept              time.Duration // retention last requested for the own stream; -1: none
	now               time.Time     // when this round began, by the bus's clock

	mu     sync.Mutex
	failed error
	signed map[string]time.Time // by stream: when it was last found signed up to its end
}

// head is the last page about a stream.
type head struct {
	tree *Tree
	// page is the last one; nil: there is none.
	page     *Page
	sequence uint64 // sequence of the page
	// breaks says why the next page begins a new tree.
	breaks string
}

// New makes a notary.
func New(b bus.NotaryBus, o Options) *Notary {
	o.Every = cmp.Or(o.Every, defaultEvery)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Notary{bus: b, Options: o, heads: map[string]*head{}, own: remembered{Seen: map[string]Checkpoint{}}, kept: -1, signed: map[string]time.Time{}, failed: errors.New("no round has been made yet")}
}

// farewell limits the time of the last round.
const farewell = 3 * time.Second

// Run signs in rounds until the context ends, and then once more. A failed round is retried in
// the next one.
func (n *Notary) Run(ctx context.Context) error {
	defer func() {
		last, end := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer end()
		_ = n.Round(last) // the next notary signs what this one could not
	}()
	for {
		err := n.Round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		n.mu.Lock()
		if err != nil && (n.failed == nil || n.failed.Error() != err.Error()) {
			n.Log.Error("signing is incomplete; retrying", "error", err)
		}
		n.failed = err
		n.mu.Unlock()
		timer := time.NewTimer(n.Every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Healthy is nil if the last round signed everything.
func (n *Notary) Healthy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Signed gives, for each stream, when this notary last found it signed up to its end, or when it
// first saw the stream.
func (n *Notary) Signed() map[string]time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.signed)
}

// noteSigned records which streams are signed now.
func (n *Notary) noteSigned(streams []string, failed map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.signed
	n.signed = make(map[string]time.Time, len(streams))
	for _, name := range streams {
		if at, seen := was[name]; seen && failed[name] {
			n.signed[name] = at
		} else {
			n.signed[name] = time.Now()
		}
	}
}

// Round signs the messages stored since the last round.
//
// Errors: ErrGone, among others.
func (n *Notary) Round(ctx context.Context) error {
	if err := n.recall(); err != nil {
		return err
	}
	if err := n.present(ctx); err != nil {
		return err
	}
	err := n.round(ctx)
	return errors.Join(err, n.remember())
}

func (n *Notary) round(ctx context.Context) error {
	streams, err := Streams(ctx, n.bus)
	if err != nil {
		return err
	}
	states := make(map[string]bus.State, len(streams))
	for _, name := range streams {
		state, err := n.bus.StreamState(ctx, name)
		if err != nil && !errors.Is(err, bus.ErrNoStream) {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		states[name] = state
	}
	if err := n.ensure(ctx, states); err != nil {
		return err
	}
	if err := n.made(ctx); err != nil {
		return err
	}
	var failed []error
	unsigned := map[string]bool{}
	for _, name := range streams {
		err := n.stream(ctx, name, states[name])
		if errors.Is(err, bus.ErrOvertaken) { // by another notary: continue from its page
			delete(n.heads, name)
			err = n.stream(ctx, name, states[name])
		}
		if errors.Is(err, bus.ErrNoStream) {
			if _, gone := n.bus.StreamState(ctx, name); errors.Is(gone, bus.ErrNoStream) {
				err = nil // the stream was deleted meanwhile; its pages show that it existed
			}
		}
		if err != nil && !errors.Is(err, bus.ErrOvertaken) {
			delete(n.heads, name) // read the stored pages again in the next round
			unsigned[name] = true
			failed = append(failed, fmt.Errorf("sign %s: %w", name, err))
		}
	}
	n.noteSigned(streams, unsigned)
	return errors.Join(append(failed, n.list(ctx, streams))...)
}

// Streams are the streams that a notary signs, sorted.
func Streams(ctx context.Context, b bus.Archive) ([]string, error) {
	have, err := b.Kinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which kinds there are: %w", err)
	}
	controllers, err := b.Controllers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which controllers there are: %w", err)
	}
	shadows, err := b.Shadows(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which shadows there are: %w", err)
	}
	var streams []string
	for _, k := range have {
		streams = append(streams, subject.LogStream(k.Name))
	}
	for _, c := range controllers {
		streams = append(streams, subject.TurnStream(c), subject.OutcomeStream(c))
	}
	for _, c := range shadows {
		streams = append(streams, subject.ShadowStream(c))
	}
	slices.Sort(streams)
	return streams, nil
}

// ensure makes the notary's own stream keep pages longer than any message that they cover.
func (n *Notary) ensure(ctx context.Context, states map[string]bus.State) error {
	keep := time.Duration(1)
	for _, s := range states {
		if s.Keeps.Age == 0 && s.Last > 0 {
			keep = 0
			break
		}
		keep = max(keep, s.Keeps.Age)
	}
	if keep > 0 {
		keep += margin
	}
	if keep == n.kept {
		return nil
	}
	if err := n.bus.EnsureNotary(ctx, keep); err != nil {
		return err
	}
	n.kept = keep
	return nil
}

// stream signs the new messages of a stream.
func (n *Notary) stream(ctx context.Context, name string, state bus.State) error {
	if state.Last == 0 {
		return nil
	}
	h, err := n.head(ctx, name)
	if err != nil {
		return err
	}
	if last := h.page; last != nil && (state.Last < last.Last || !last.Created.Equal(state.Created)) {
		// Another notary may have read a newer state than this one.
		if state, err = n.bus.StreamState(ctx, name); err != nil {
			return err
		}
	}
	switch last := h.page; {
	case h.breaks != "" || last == nil:
		n.begin(h, state)
	case !last.Created.Equal(state.Created):
		h.breaks = "the stream was made anew on " + state.Created.UTC().Format(time.RFC3339)
		n.begin(h, state)
	case state.Last < last.Last:
		h.breaks = fmt.Sprintf("the stream ends with message %d, where it had %d", state.Last, last.Last)
		n.begin(h, state)
	case state.Last == last.Last && keepsSince(state, last.Time) == last.Keeps && state.Now.Sub(last.Time) < quiet:
		return nil
	}
	return n.sign(ctx, name, h, state)
}

// head finds the last page about a stream, in memory or on the bus.
func (n *Notary) head(ctx context.Context, name string) (*head, error) {
	if h := n.heads[name]; h != nil {
		return h, nil
	}
	m, ok, err := n.bus.Last(ctx, subject.NotaryStream, subject.Notary(name))
	if err != nil {
		return nil, fmt.Errorf("look for the last page: %w", err)
	}
	h := &head{tree: &Tree{}}
	if ok {
		h.sequence = m.Sequence
		if err := h.take(m, name, n.Known); err != nil {
			h.breaks = "the last page cannot be trusted: " + err.Error()
			n.Log.Error("the last page of a stream has no trusted signature; starting a new tree", "stream", name, "page", m.Sequence, "error", err)
		}
	}
	if n.missing(name, h) {
		if !n.BeginAnew {
			return nil, fmt.Errorf("%w: the last page vouched for message %d", ErrGone, n.own.Seen[name].Last)
		}
		n.beginAnew(time.Now())
	}
	if h.page == nil && h.breaks == "" {
		h.breaks = n.anew
	}
	if known, ok := n.own.Seen[name]; ok && h.page != nil && h.page.Created.Equal(known.Created) && h.page.Size < known.Size {
		h.breaks = fmt.Sprintf("pages that were stored are there no more; the last one vouched for message %d", known.Last)
	}
	if h.page != nil && h.breaks == "" {
		n.own.Seen[name], n.changed = h.page.Checkpoint, true
	}
	n.heads[name] = h
	return h, nil
}

// take continues from a stored page.
func (h *head) take(m events.Message, name string, known note.Verifiers) error {
	p, err := openMessage(m, name, known)
	if err != nil {
		return err
	}
	t, err := Continue(p.Before, p.Edge)
	if err != nil {
		return err
	}
	for _, e := range p.Entries {
		if err := t.Add(e.Leaf); err != nil {
			return err
		}
	}
	h.tree, h.page = t, p
	return nil
}

// openMessage opens the page in a message about a stream, and checks when it was signed.
func openMessage(m events.Message, name string, known note.Verifiers) (*Page, error) {
	if err := events.Verify(m); err != nil {
		return nil, err
	}
	p, err := Open(m.Data, known)
	if err == nil && p.Stream != name {
		err = fmt.Errorf("it is about %s", p.Stream)
	}
	if err == nil {
		err = counts(known, p.by, p.Time, m.Time)
	}
	return p, err
}

// begin begins a new tree with the first message that exists.
func (n *Notary) begin(h *head, state bus.State) {
	if h.breaks != "" {
		n.Log.Warn("starting a new tree", "because", h.breaks)
	}
	h.tree = &Tree{}
	h.page = &Page{Checkpoint: Checkpoint{Created: state.Created, Last: state.First - 1}}
}

// sign reads the new messages, and stores one page for every pageEntries of them, and a last
// page even if there are no new messages.
func (n *Notary) sign(ctx context.Context, name string, h *head, state bus.State) error {
	var entries []Entry
	if from := h.page.Last + 1; from <= state.Last {
		err := n.bus.Read(ctx, bus.Passage{Stream: name, From: from, To: state.Last}, func(batch []events.Message) error {
			for _, m := range batch {
				entries = append(entries, Entry{m.Sequence, Leaf(m), m.Time.Unix(), expires(m)})
				if len(entries) < pageEntries || m.Sequence == state.Last {
					continue
				}
				if err := n.store(ctx, name, h, state, entries, m.Sequence); err != nil {
					return err
				}
				entries = nil
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return n.store(ctx, name, h, state, entries, state.Last)
}

// store signs and stores a page about the messages up to last.
func (n *Notary) store(ctx context.Context, name string, h *head, state bus.State, entries []Entry, last uint64) error {
	edge, err := h.tree.Edge()
	if err != nil {
		return err
	}
	p := &Page{Before: h.tree.Size, Edge: edge, Entries: entries}
	for _, e := range entries {
		if err := h.tree.Add(e.Leaf); err != nil {
			return err
		}
	}
	root, err := h.tree.Root()
	if err != nil {
		return err
	}
	p.Checkpoint = Checkpoint{
		Stream: name, Created: state.Created, Number: h.page.Number + 1, Size: h.tree.Size, Root: root,
		First: h.page.Last + 1, Last: last, Time: state.Now, Keeps: keepsSince(state, h.page.Time), Listed: n.own.List.Number, Break: h.breaks,
	}
	stored, err := p.Sign(n.Signer)
	if err != nil {
		return err
	}
	m := events.Message{Subject: subject.Notary(name), Header: map[string][]string{
		events.HeaderContentType: {contentType}, events.HeaderCovers: {events.Covers(p.First, p.Last)},
	}, Data: stored}
	sequence, err := n.bus.Store(ctx, m, h.sequence)
	if err != nil {
		return fmt.Errorf("store a page: %w", err)
	}
	h.page, h.sequence, h.breaks = p, sequence, ""
	n.own.Seen[name], n.changed = p.Checkpoint, true
	return nil
}

const contentType = "application/vnd.millrace.page"
