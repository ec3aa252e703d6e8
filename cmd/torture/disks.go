package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// Times of the faults that lose data.
const (
	// lateWork is how long users work between a backup and its restore: that much is lost.
	lateWork = 15 * time.Second
	// settles is how long after such a fault, with everything ready, the services may still carry out work
	// that had begun before it. Where the fault lost the data that the rules compare, the checker begins
	// after that time.
	settles = 10 * time.Second
)

// disks plays the faults that lose data, one at a time and with everything ready before and after: Millrace
// promises nothing for a bus of three that loses two disks at once, or one disk while another server is down.
// Users work meanwhile.
func (s *session) disks(ctx context.Context) {
	s.say("etcd is restored from a backup, and disks of the bus are lost and damaged")
	r := rand.New(rand.NewPCG(s.options.seed, 0x6469736b))
	one := func(kind fault.Kind, target string, do func(context.Context) error) {
		f := fault.Fault{Number: len(s.report.Strikes) + 1, Kind: kind, Targets: []string{target}}
		fmt.Fprintln(s.schedule, f)
		played := strike{Fault: f, Began: time.Now(), Hit: 1}
		bounded, cancel := context.WithTimeout(ctx, s.options.patience)
		defer cancel()
		if err := errors.Join(do(bounded), s.plant.awaitReady(bounded)); err != nil {
			played.Hit, played.Error = 0, err.Error()
		}
		played.Ended = time.Now()
		s.report.Strikes = append(s.report.Strikes, played)
		sleep.For(ctx, settles)
	}
	backup := filepath.Join(s.dir, "backup")
	one(fault.Backup, "etcd", func(ctx context.Context) error {
		return s.plant.withStorage(ctx, func(data string) error { return os.CopyFS(backup, os.DirFS(data)) })
	})
	sleep.For(ctx, lateWork)
	one(fault.Restore, "etcd", func(ctx context.Context) error {
		err := s.plant.withStorage(ctx, func(data string) error {
			return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
		})
		// The scheduler and kwok remember objects that the restored etcd never had, and wait for changes that
		// will not come: etcd's documentation says to restart them. Millrace must find out by itself.
		return errors.Join(err, s.plant.slot("kube-scheduler").kill(false, 0), s.plant.slot("kwok").kill(false, 0))
	})
	bus := s.plant.buses[r.IntN(len(s.plant.buses))].name
	if len(s.plant.buses) == 1 { // the record begins anew, and so does the check
		one(fault.LoseDisk, bus, func(ctx context.Context) error { return s.plant.withBus(ctx, bus, os.RemoveAll) })
		s.since = time.Now()
		return
	}
	s.since = time.Now()
	one(fault.LoseDisk, bus, func(ctx context.Context) error { return s.plant.withBus(ctx, bus, os.RemoveAll) })
	bus = s.plant.buses[r.IntN(len(s.plant.buses))].name
	one(fault.DamageDisk, bus, func(ctx context.Context) error {
		return s.plant.withBus(ctx, bus, func(dir string) error { return damage(dir, r) })
	})
}

// withStorage ends the API server and etcd, runs do on etcd's data directory, and lets both start again.
func (p *plant) withStorage(ctx context.Context, do func(data string) error) error {
	server, etcd := p.slot("kube-apiserver"), p.slot("etcd")
	letServer, err := server.hold(ctx)
	if err != nil {
		return err
	}
	defer letServer()
	letEtcd, err := etcd.hold(ctx)
	if err != nil {
		return err
	}
	// Another cluster that starts would treat data that no etcd locks as abandoned.
	now := time.Now()
	if err := errors.Join(os.Chtimes(p.cluster.StorageDir(), now, now), do(p.cluster.StorageDir())); err != nil {
		letEtcd()
		return fmt.Errorf("change etcd's data: %w", err)
	}
	letEtcd()
	return etcd.awaitReady(ctx)
}

// withBus ends a server of the bus, runs do on its directory, and lets it start again.
func (p *plant) withBus(ctx context.Context, name string, do func(dir string) error) error {
	s := p.slot(name)
	release, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := do(filepath.Join(p.dir, "data", name)); err != nil {
		return fmt.Errorf("change the disk of %s: %w", name, err)
	}
	return nil
}

// damage flips bytes in the largest message files, and truncates one of them.
func damage(dir string, r *rand.Rand) error {
	type file struct {
		path string
		size int64
	}
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		return err
	}
	var files []file
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		files = append(files, file{path, info.Size()})
	}
	slices.SortFunc(files, func(a, b file) int { return int(b.size - a.size) })
	if len(files) < 4 || files[3].size < 1000 {
		return fmt.Errorf("damage files in %s: there are %d with messages", dir, len(files))
	}
	for _, f := range files[:3] {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		for range 20 {
			text[r.IntN(len(text))] ^= byte(1 << r.IntN(8))
		}
		if err := os.WriteFile(f.path, text, 0o600); err != nil {
			return err
		}
	}
	return os.Truncate(files[3].path, files[3].size-100)
}
