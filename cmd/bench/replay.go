package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/cmd/bench/procusage"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	catalogue "github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

// The sizes of the two records that are replayed: one is almost all turns, the other almost all changes.
const (
	replayTurns  = 40_000
	replayDeltas = 400_000
	replayPods   = 10 // of each set
)

// replayed makes two records and replays them. It needs no cluster, and no other contender has a record.
func replayed(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if _, ok := f.who.(millrace); !ok {
		return nil, nil
	}
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	sets := max(work.Pods/replayPods, 1)
	turns, err := replayRecord(ctx, rehearsal{sets: sets, turns: replayTurns, changes: 1})
	if err != nil {
		return nil, err
	}
	deltas, err := replayRecord(ctx, rehearsal{sets: sets, turns: replayDeltas / 1000, changes: 1000})
	if err != nil {
		return nil, err
	}
	return append(
		turns.metrics("turns", fmt.Sprintf(", of %d with a change each", turns.Turns), turns.Turns),
		deltas.metrics("changes", fmt.Sprintf(", of %d with a turn for each thousand", deltas.Deltas), deltas.Deltas)...,
	), nil
}

// performance is a replay and its cost, from the bus and from a file.
type performance struct {
	replay.Summary
	bus, file effort
}

// effort is elapsed time, and the processor time of this program, which includes the server of the streams.
// Processor time is meaningful on a busy machine, too.
type effort struct{ took, used time.Duration }

// metrics are the metrics of a performance over `many` items.
func (p performance) metrics(what, of string, many int) []metric {
	rate := func(e effort) float64 { return float64(many) / e.took.Seconds() }
	each := func(e effort) float64 { return float64(e.used.Microseconds()) / float64(many) }
	return []metric{
		{what + " replayed" + of, "1/s", rate(p.bus)},
		{what + " replayed, processor time of one", "µs", each(p.bus)},
		{what + " replayed from a file", "1/s", rate(p.file)},
		{what + " replayed from a file, processor time of one", "µs", each(p.file)},
	}
}

// replayRecord makes a record and replays it, from the bus and from a file.
func replayRecord(ctx context.Context, r rehearsal) (p performance, err error) {
	err = rehearsed(ctx, r, func(b *stream.Bus, dir string) error {
		defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the command has it
		file, err := exported(ctx, b, dir)
		if err != nil {
			return err
		}
		// The first pass pays for memory that was not touched before. Each source runs once before the
		// measurement, which makes them comparable.
		for range 2 {
			if p.Summary, p.bus, err = r.replay(ctx, b); err != nil {
				break
			}
			if _, p.file, err = r.replay(ctx, file); err != nil {
				break
			}
		}
		return errors.Join(err, file.Close())
	})
	return p, err
}

// replay fails unless every turn comes out as recorded.
func (r *rehearsal) replay(ctx context.Context, from bus.Archive) (replay.Summary, effort, error) {
	goruntime.GC() // garbage of earlier steps must not count
	begun, used := time.Now(), procusage.OwnTime()
	s, err := replay.Run(ctx, from, replay.Options{Make: catalogue.Again}, func(replay.Case) error { return nil })
	if err == nil && (s.Same != s.Turns || s.Turns != r.turns) {
		err = fmt.Errorf("of %d turns %d were the same: %+v", r.turns, s.Same, s)
	}
	return s, effort{time.Since(begun), procusage.OwnTime() - used}, err
}

// rehearsed makes a record in a bus of its own, and calls do with it and with a directory for files.
func rehearsed(ctx context.Context, r rehearsal, do func(b *stream.Bus, dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "millrace-replay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := embedded.Serve(embedded.Options{Dir: filepath.Join(dir, "streams")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	b, err := stream.Connect(ctx, stream.Options{Server: server, Name: "bench", Timeout: time.Minute, Backups: true})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := r.make(ctx, b); err != nil {
		return fmt.Errorf("make a record: %w", err)
	}
	r.seen, r.logs, r.tallies, r.pods = nil, nil, nil, nil // not to be measured
	return do(b, dir)
}

// rehearsal makes a record by deciding: pods change, and the ReplicaSet of the pod that changed last has its
// turn.
type rehearsal struct {
	sets, turns, changes int

	seen     *cache.History
	logs     map[kinds.Name]bus.Appender
	tallies  map[kinds.Name]*events.Tally
	version  int
	pods     []*corev1.Pod
	storing  *errgroup.Group
	position events.Position
}

const actor = "replicaset-controller"

func (r *rehearsal) make(ctx context.Context, b *stream.Bus) error {
	r.seen, r.logs, r.tallies, r.position = cache.NewHistory(1), map[kinds.Name]bus.Appender{}, map[kinds.Name]*events.Tally{}, events.Position{}
	for _, kind := range []kinds.Kind{kinds.ReplicaSets.Kind, kinds.Pods.Kind} {
		if err := b.EnsureKind(ctx, kind); err != nil {
			return err
		}
		log, err := b.Append(ctx, kind.Name)
		if err != nil {
			return err
		}
		defer log.Close()
		r.logs[kind.Name], r.tallies[kind.Name] = log, &events.Tally{}
		r.seen.Begin(kind, 0, nil, true)
	}
	if err := b.EnsureController(ctx, actor); err != nil {
		return err
	}
	if err := r.populate(ctx); err != nil {
		return err
	}
	controller, err := catalogue.Again(actor, nil)
	if err != nil {
		return err
	}
	r.storing, ctx = errgroup.WithContext(ctx)
	r.storing.SetLimit(32)
	for i := range r.turns {
		for range r.changes {
			if err := r.change(ctx); err != nil {
				return err
			}
		}
		if err := r.turn(ctx, b, controller, i); err != nil {
			return err
		}
	}
	for _, log := range r.logs {
		if err := log.Flush(ctx); err != nil {
			return err
		}
	}
	return r.storing.Wait()
}

// populate stores ReplicaSets and their pods. The status of the ReplicaSets is always wrong, so that each
// turn has something to report.
func (r *rehearsal) populate(ctx context.Context) error {
	for i := range r.sets {
		labels := map[string]string{"app": "web", "set": strconv.Itoa(i)}
		set := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("shop-", i%50), Name: fmt.Sprint("web-", i), Generation: 1},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](replayPods), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podOf(i).Spec,
			}},
		}
		if err := r.say(ctx, kinds.ReplicaSets.Kind, set); err != nil {
			return err
		}
		for at := range replayPods {
			p := podOf(i*replayPods + at)
			p.Namespace, p.Labels, p.Status.Conditions = set.Namespace, labels, []corev1.PodCondition{{Type: corev1.PodReady}}
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kinds.ReplicaSets.Kind.GVK())}
			r.pods = append(r.pods, p)
			if err := r.say(ctx, kinds.Pods.Kind, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// change toggles the readiness of the next pod.
func (r *rehearsal) change(ctx context.Context) error {
	p := r.pods[r.version*7919%len(r.pods)]
	p.Status.Conditions[0].Status = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[r.version/len(r.pods)%2]
	return r.say(ctx, kinds.Pods.Kind, p)
}

// say stores an object and folds it into the view.
func (r *rehearsal) say(ctx context.Context, kind kinds.Kind, object runtime.Object) error {
	r.version++
	d, err := deltaOf(kind, object, r.version, "kubelet")
	if err != nil {
		return err
	}
	tally := r.tallies[kind.Name]
	tally.Fold(d)
	d.Census = tally.Census()
	m := events.Seal(subject.Message(d))
	if err := r.logs[kind.Name].Append(ctx, m); err != nil {
		return err
	}
	m.Sequence = r.logs[kind.Name].Last()
	r.position[kind.Name] = m.Sequence
	r.seen.Fold(kind.Name, []cache.Fact{cache.Read(kind, m)})
	return nil
}

// turn decides about the ReplicaSet of the pod that changed last, and stores the turn.
func (r *rehearsal) turn(ctx context.Context, b *stream.Bus, controller reconcile.Any, place int) error {
	sight, err := r.seen.ViewAt(r.position, nil)
	if err != nil {
		return err
	}
	p := r.pods[(r.version-1)*7919%len(r.pods)]
	t := events.Turn{
		Controller: actor, Key: events.Key{Namespace: p.Namespace, Name: p.OwnerReferences[0].Name}, Lane: events.LaneStatus,
		Seen: r.position, Digest: sight.Digest, Now: time.Now(),
	}
	decision, _ := controller.Ask(sight.Snapshot, t.Key, t.Now)
	part := decision.In(t.Lane)
	if len(part.Commands) == 0 {
		return fmt.Errorf("%v has nothing to report: %s", t.Key, decision.Because)
	}
	t.Because, t.Commands = part.Because, part.Commands
	t.Pack()
	m, err := events.EncodeJSON(t, events.Trace{}) // encode now, because the position advances
	if err != nil {
		return err
	}
	m.Subject = subject.Turn(actor, t.Lane, t.Key)
	r.storing.Go(func() error {
		_, err := b.Put(ctx, events.Seal(m), fmt.Sprint("rehearsed-", place))
		return err
	})
	return nil
}

// verified signs a record and verifies it, on the bus and in a file. It needs no cluster,
// and no other contender has a record.
func verified(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if _, ok := f.who.(millrace); !ok {
		return nil, nil
	}
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	sets := max(work.Pods/replayPods, 1)
	p, err := verifyRecord(ctx, rehearsal{sets: sets, turns: replayDeltas / 1000, changes: 1000})
	if err != nil {
		return nil, err
	}
	return []metric{
		{fmt.Sprintf("messages signed, of %d", p.messages), "1/s", float64(p.messages) / p.signed.Seconds()},
		{"messages verified, on the bus", "1/s", float64(p.messages) / p.onBus.Seconds()},
		{"messages verified, in a file", "1/s", float64(p.messages) / p.inFile.Seconds()},
		{"the record, unpacked, for 1,000 messages", "kB", float64(p.stored) / float64(p.messages)},
		{"the notary's pages, for 1,000 messages", "kB", float64(p.pages) / float64(p.messages)},
	}, nil
}

// proof is the time to sign and verify a record, and the sizes in bytes of the record and of the notary's
// pages.
type proof struct {
	messages              int
	signed, onBus, inFile time.Duration
	stored, pages         uint64
}

func verifyRecord(ctx context.Context, r rehearsal) (p proof, err error) {
	err = rehearsed(ctx, r, func(b *stream.Bus, dir string) error {
		private, _, err := notary.Generate("notary.bench")
		if err != nil {
			return err
		}
		signer, verifier, err := notary.Signer(private)
		if err != nil {
			return err
		}
		trust := notary.Trust{Known: note.VerifierList(verifier)}
		begun := time.Now()
		if err := notary.New(b, notary.Options{Signer: signer, Known: trust.Known}).Round(ctx); err != nil {
			return err
		}
		p.signed = time.Since(begun)
		if p.onBus, err = p.verify(ctx, b, trust); err != nil {
			return err
		}
		if err := p.weigh(ctx, b); err != nil {
			return err
		}
		file, err := exported(ctx, b, dir)
		if err != nil {
			return err
		}
		p.inFile, err = p.verify(ctx, file, trust)
		return errors.Join(err, file.Close())
	})
	return p, err
}

// verify fails unless every message is proven.
func (p *proof) verify(ctx context.Context, from bus.Archive, trust notary.Trust) (time.Duration, error) {
	begun := time.Now()
	report, err := notary.Verify(ctx, from, trust)
	took := time.Since(begun)
	if err != nil {
		return took, err
	}
	messages, proven := 0, 0
	for _, s := range report.Streams {
		messages, proven = messages+s.Messages, proven+s.Proven
	}
	if messages == 0 || proven != messages || len(report.Findings) > 0 {
		return took, fmt.Errorf("of %d messages %d are proven; found: %v", messages, proven, report.Findings)
	}
	p.messages = messages
	return took, nil
}

// weigh measures the stored sizes.
func (p *proof) weigh(ctx context.Context, b *stream.Bus) error {
	streams, err := notary.Streams(ctx, b)
	if err != nil {
		return err
	}
	for _, name := range append(streams, subject.NotaryStream) {
		state, err := b.StreamState(ctx, name)
		if err != nil {
			return err
		}
		if name == subject.NotaryStream {
			p.pages += state.Bytes
		} else {
			p.stored += state.Bytes
		}
	}
	return nil
}

// exported is the record in a file.
func exported(ctx context.Context, b *stream.Bus, dir string) (*archive.File, error) {
	name := filepath.Join(dir, "record.millrace")
	out, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	_, err = archive.Export(ctx, b, out, archive.Selection{})
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	return archive.Open(name)
}
