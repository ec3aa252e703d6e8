package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/check/ledger"
	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/crowd"
	"github.com/millrace/millrace/cmd/internal/wire"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// session is one run, from the empty machine to the verdict.
type session struct {
	options options
	dir     string
	commit  string // the checkout's, when it began
	begun   time.Time

	plant *plant
	crowd *crowd.Crowd
	probe *crowd.Probe

	started, ready time.Time // when everything was started, and when it was ready first
	since          time.Time // the check begins at this time; zero: at the beginning of the record

	machine  machine
	schedule io.Writer // the faults as they happen
	report   report
}

const (
	// canary is a secret value that must not appear anywhere.
	canary = "canary-5b0de7c39a1f4826"
	// probeEvery is how often the probe deletes a pod, besides once for each kill.
	probeEvery = 2 * time.Second
	// stillness is how long no request may write before the cluster counts as at rest.
	stillness = 10 * time.Second
)

func (s *session) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// play runs the whole session. Its error is a broken rule, or the reason why the run could not be checked.
func (s *session) play(ctx context.Context) (err error) {
	log, err := os.Create(filepath.Join(s.dir, "faults.log"))
	if err != nil {
		return fmt.Errorf("write the log of faults: %w", err)
	}
	defer log.Close()
	s.schedule = log
	if s.plant, err = build(ctx, s.dir, s.options.size, os.Stderr); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.plant.close()) }()
	starting, cancel := context.WithTimeout(ctx, s.options.patience)
	defer cancel()
	watching, blind := context.WithCancel(ctx)
	defer blind()
	go s.machine.watch(watching)
	s.started = time.Now()
	if err := s.plant.run(starting); err != nil {
		return err
	}
	s.ready = time.Now()
	if err := s.work(ctx); err != nil {
		return err
	}
	if err := s.judge(ctx); err != nil {
		return err
	}
	return s.verdict()
}

// work runs the users and the faults, and then waits for rest.
func (s *session) work(ctx context.Context) (err error) {
	admin := s.plant.cluster.Kubeconfig(localcluster.Admin)
	if s.crowd, err = crowd.Connect(crowd.Options{Kubeconfig: admin, Seed: s.options.seed, Users: s.options.users, Pause: s.options.pause}); err != nil {
		return err
	}
	if s.probe, err = crowd.NewProbe(admin); err != nil {
		return err
	}
	// Objects that users have left need volumes until the cluster is at rest.
	binding, end := context.WithCancel(ctx)
	var binder sync.WaitGroup
	binder.Go(func() { s.crowd.Bind(binding) })
	defer binder.Wait()
	defer end()
	if err := s.load(ctx); err != nil {
		return err
	}
	return s.rest(ctx)
}

// load runs the users, first without faults, then under the faults. It returns when everything is ready again
// and the users have stopped.
func (s *session) load(ctx context.Context) error {
	if err := s.crowd.Plant(ctx, canary); err != nil {
		return err
	}
	working, leave := context.WithCancel(ctx)
	defer leave()
	ending, end := context.WithCancel(ctx) // for work that users have begun
	defer end()
	var people sync.WaitGroup
	people.Go(func() { s.crowd.Run(ending, working.Done()) })
	people.Go(func() { s.probe.Run(working, probeEvery) })
	begun := time.Now()
	s.torment(ctx)
	s.heal()
	s.report.Load = time.Since(begun)
	leave()
	defer time.AfterFunc(s.options.patience, end).Stop()
	people.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// torment plays the faults: after a time of peace first the single faults, and then the schedule.
func (s *session) torment(ctx context.Context) {
	s.say("everything runs; %v of peace", s.options.calm)
	sleep.For(ctx, s.options.calm)
	struck := func(f fault.Fault) {
		switch f.Kind {
		case fault.Kill, fault.Restart, fault.Pause, fault.Cut, fault.HalfOpen, fault.Stall:
			s.probe.Soon()
		}
	}
	if s.options.disks {
		s.disks(ctx)
	}
	site, before := s.options.size.site(), len(s.report.Strikes)
	singles := fault.Singles(s.options.singles, site)
	s.say("%d kills, stops and cuts, one at a time", len(singles))
	for i := range singles {
		singles[i].Number += before
	}
	s.report.Strikes = append(s.report.Strikes, s.plant.playSingly(ctx, singles, s.schedule, struck)...)

	schedule := fault.Plan(s.options.seed, s.options.faults, s.options.time, site)
	for i := range schedule {
		schedule[i].Number += before + len(singles)
	}
	s.say("%d faults in %v, from seed %d", len(schedule), s.options.time, s.options.seed)
	s.report.Strikes = append(s.report.Strikes, s.plant.play(ctx, schedule, s.schedule, struck)...)
}

// heal resets every wire and ends every API server fault that may be left.
func (s *session) heal() {
	for name := range s.plant.wires {
		s.plant.set(name, wire.Condition{})
	}
	for _, f := range s.plant.fronts {
		s.report.Met += f.Met()
		f.Set(wire.Trouble{})
	}
}

// rest waits until everything is ready, no request writes, and the objects are as the users asked for. If
// that takes too long, the rules report it.
func (s *session) rest(ctx context.Context) error {
	begun := time.Now()
	s.say("the last fault is over; waiting for rest")
	waiting, cancel := context.WithTimeout(ctx, s.options.patience)
	defer cancel()
	if err := s.plant.awaitReady(waiting); err != nil {
		return err
	}
	storage := ledger.NewStorage(s.plant.cluster.EtcdEndpoint())
	for quiet := false; ; quiet = true {
		if err := s.still(waiting); err != nil {
			if !quiet { // else the objects are not as they should be, which a rule reports
				s.report.Restless = fmt.Sprintf("writing went on for %v after the last fault", time.Since(begun).Round(time.Second))
			}
			break
		}
		changes, err := storage.Changes(waiting)
		if err == nil && len(check.Converged(changes)) == 0 {
			break
		}
		if !sleep.For(waiting, time.Second) {
			break
		}
	}
	s.report.Rest = time.Since(begun) - stillness
	return ctx.Err()
}

// still waits until the audit log has not grown for [stillness].
func (s *session) still(ctx context.Context) error {
	size, since := int64(-1), time.Now()
	for time.Since(since) < stillness {
		info, err := os.Stat(s.plant.audit)
		if err != nil {
			return fmt.Errorf("look at the audit log: %w", err)
		}
		if info.Size() != size {
			size, since = info.Size(), time.Now()
		}
		if !sleep.For(ctx, 200*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// judge ends the services, reads the three books, and compares them.
func (s *session) judge(ctx context.Context) error {
	s.say("at rest; reading the books")
	s.report.Crashes, s.report.Others = s.plant.crashes(true), s.plant.crashes(false)
	if err := s.plant.stopServices(); err != nil {
		s.report.Unclean = err.Error()
	}
	h := check.History{Faults: s.faults(), Since: s.since}
	var err error
	if h.Changes, err = ledger.NewStorage(s.plant.cluster.EtcdEndpoint()).Changes(ctx); err != nil {
		return err
	}
	if h.Writes, err = ledger.Audit(s.plant.audit); err != nil {
		return err
	}
	otherwise, err := s.read(ctx, &h)
	if err != nil {
		return err
	}
	if err := keep(filepath.Join(s.dir, "history.json.gz"), &h); err != nil {
		return err
	}
	s.report.Figures, s.report.Violations = check.Judge(&h)
	s.report.Samples, s.report.Done, s.report.Failed = s.probe.Samples(), s.crowd.Done(), s.crowd.Failed()
	s.report.HandOvers = handOvers(s.report.Samples, s.report.Strikes)
	s.report.Violations = slices.Concat(s.report.Violations, otherwise, s.report.unasked(s.options.singles))
	return nil
}

// faults returns the faults in the form of the rules, one for each target, and the first start.
func (s *session) faults() []check.Fault {
	all := s.machine.faults()
	s.report.Stalls = len(all)
	for _, slot := range s.plant.slots {
		all = append(all, check.Fault{Kind: "start", Target: slot.name, Began: s.started, Ended: s.ready})
	}
	for _, f := range s.report.Strikes {
		for _, target := range f.Targets {
			all = append(all, check.Fault{Kind: string(f.Kind), Target: target, Began: f.Began, Ended: f.Ended})
		}
	}
	return all
}

// read reads the streams, looks for the canary in all files on disk, and returns the turns that replay
// decides differently.
func (s *session) read(ctx context.Context, h *check.History) ([]check.Violation, error) {
	var names []string
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	url := ""
	for _, b := range s.plant.buses {
		url += "," + "nats://" + b.clients
	}
	b, err := stream.Connect(ctx, stream.Options{URL: url[1:], Name: "torture", Replicas: s.options.size.buses})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	record := ledger.NewRecord(b, names, canary)
	if err := record.Read(ctx, h); err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Join(s.dir, "data"), filepath.Join(s.dir, "cluster", "logs")} {
		if err := record.Search(dir, h); err != nil {
			return nil, fmt.Errorf("look for the canary: %w", err)
		}
	}
	if err := s.export(ctx, b); err != nil {
		return nil, err
	}
	return s.replay(ctx, b)
}

// export writes the record to the file that the flag names.
func (s *session) export(ctx context.Context, from bus.Archive) error {
	if s.options.export == "" {
		return nil
	}
	out, err := os.Create(s.options.export)
	if err != nil {
		return fmt.Errorf("export the record: %w", err)
	}
	_, err = archive.Export(ctx, from, out, archive.Selection{Program: "torture"})
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("export the record to %s: %w", s.options.export, err)
	}
	return nil
}
