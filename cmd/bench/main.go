// Command bench runs the same work on the same machine with the real kube-controller-manager at its defaults,
// the same program tuned, and Millrace, one after the other and each on a fresh cluster, and prints one table
// with ratios.
//
// It measures with a watch of its own and its own clock. The numbers also go to a JSON file, and
// docs/benchmarks.md is written from them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/bench/cpuprofile"
	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// sizes are the amounts of work.
type sizes struct {
	Rounds      int `json:"rounds"`      // of each of the shorter scenarios; the median counts
	Burst       int `json:"burst"`       // replicas of the one Deployment
	Deployments int `json:"deployments"` // of 5 replicas each
	Heals       int `json:"heals"`       // Pods deleted one after the other
	Kills       int `json:"kills"`       // of each service
	Pods        int `json:"pods"`        // that exist at a restart
	Direct      int `json:"direct"`      // Pods that this program creates itself
	Past        int `json:"past"`        // messages of history before a start
	Scales      int `json:"scales"`      // operations with each share of traces
	Rest        int `json:"rest"`        // seconds of measured rest
	Completions int `json:"completions"` // of one Job
	Ordered     int `json:"ordered"`     // Pods of one StatefulSet
	Held        int `json:"held"`        // objects in a namespace that is deleted
	Claims      int `json:"claims"`      // of volumes, bound and attached
	Requests    int `json:"requests"`    // of certificates, of devices, of ranges
}

var (
	full  = sizes{Rounds: 3, Burst: 500, Deployments: 200, Heals: 200, Kills: 4, Pods: 10_000, Direct: 2000, Past: 1_000_000, Scales: 1000, Rest: 60, Completions: 1000, Ordered: 50, Held: 2000, Claims: 500, Requests: 1000}
	small = sizes{Rounds: 1, Burst: 100, Deployments: 20, Heals: 20, Kills: 1, Pods: 1000, Direct: 200, Past: 20_000, Scales: 200, Rest: 8, Completions: 50, Ordered: 5, Held: 100, Claims: 20, Requests: 50}
)

func main() {
	contenders := flag.String("contenders", strings.Join(usual(), ","), "programs to measure: kcm, kcm-tuned, millrace, earlier; \"none\" with --add prints the earlier results")
	chosen := flag.String("scenarios", strings.Join(played(), ","), "scenarios to run; long-record and long-history run only when they are named here")
	out := flag.String("out", ".millrace/bench/results.json", "JSON file for the results")
	doc := flag.String("doc", "", "Markdown file for the results with an explanation, such as docs/benchmarks.md")
	add := flag.Bool("add", false, "keep the results in --out of other contenders and scenarios")
	few := flag.Bool("small", false, "run a fraction of the work, to test the benchmark itself")
	binary := flag.String("binary", "bin/millrace", "millrace program to measure")
	before := flag.String("earlier", "", "another build of millrace, for the contender \"earlier\", to compare two versions")
	proof := flag.String("evidence", "", "JSON file for the results with the commit, date and machine, such as docs/evidence/speed.json")
	turns := flag.Int("turns", 1, "how often each contender is measured; contenders take turns, and the results are medians")
	export := flag.String("export", "", "`file` for an export of the record after the last turn of millrace")
	profile := flag.String("profile", "", "file for a CPU profile of millrace's processes, for go build -pgo, such as cmd/millrace/work.pgo")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b := &bench{work: full, scenarios: words(*chosen), binary: *binary, earlier: *before, turns: *turns, export: *export}
	if *few {
		b.work = small
	}
	if *profile != "" || *proof != "" {
		b.profiler = &cpuprofile.Profiler{}
	}
	b.results = newResults(b.work)
	err := b.run(ctx, words(*contenders), *out, *add)
	if err == nil && *profile != "" {
		err = b.profiler.Save(*profile)
	}
	if err == nil && *proof != "" { // before the page, which changes the tree whose commit the evidence names
		err = b.prove(ctx, *proof)
	}
	if err == nil && *doc != "" {
		err = b.results.document(*doc)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bench is one run of all scenarios.
type bench struct {
	work      sizes
	scenarios []string
	binary    string
	earlier   string // the program of the contender of that name
	turns     int
	profiler  *cpuprofile.Profiler
	export    string // a file for the record, or empty
	results   results
}

func (b *bench) run(ctx context.Context, names []string, out string, add bool) error {
	for _, name := range b.scenarios {
		if !slices.Contains(scenarioNames(), name) {
			return fmt.Errorf("unknown scenario %q; there are %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	if b.turns < 1 {
		return fmt.Errorf("--turns=%d: it must be at least 1", b.turns)
	}
	var err error
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return fmt.Errorf("find %s: %w", b.binary, err)
	}
	if add {
		if err := b.results.load(out, names, b.scenarios); err != nil {
			return err
		}
	}
	failure := b.takeTurns(ctx, names)
	b.results.print(os.Stdout) // what was measured is not lost because another step failed
	return errors.Join(failure, b.results.save(out))
}

// takeTurns runs all contenders several times in turns, because a machine may be a sixth faster or slower a
// few minutes later.
func (b *bench) takeTurns(ctx context.Context, names []string) error {
	for turn := range b.turns {
		if b.turns > 1 {
			fmt.Fprintf(os.Stderr, "\nturn %d of %d\n", turn+1, b.turns)
		}
		if err := b.measureAll(ctx, names); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureAll(ctx context.Context, names []string) error {
	for _, name := range names {
		who, err := b.contender(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "\n%s\n", name)
		if err := b.measure(ctx, who); err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
	}
	return nil
}

// words splits a list; an empty list has no words.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// measure runs every scenario with one contender on a cluster of its own.
func (b *bench) measure(ctx context.Context, who contender) (err error) {
	cluster, err := localcluster.Start(ctx, localcluster.Options{Lean: true, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	f, err := newField(cluster, who)
	if err != nil {
		return err
	}
	for _, s := range scenarios {
		if !slices.Contains(b.scenarios, s.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "  %s ...\n", s.what(b.work))
		measured, err := within(ctx, patience, func(ctx context.Context) ([]metric, error) { return s.run(ctx, f, b.work) })
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, m := range measured {
			fmt.Fprintf(os.Stderr, "    %s: %s\n", m.Name, m.format())
			b.results.add(s.name, who.name(), m)
		}
	}
	return errors.Join(b.exported(ctx, f), f.dismiss())
}

// exported writes the record of the running Millrace to the file that the flag names.
func (b *bench) exported(ctx context.Context, f *field) error {
	m, is := f.who.(millrace)
	if m.listen == "" || !is || len(f.units) == 0 {
		return nil
	}
	out, err := exec.CommandContext(ctx, m.binary, "export", b.export, "--overwrite", "--nats-url=nats://"+m.listen).CombinedOutput()
	if err != nil {
		return fmt.Errorf("export the record: %w\n%s", err, out)
	}
	return nil
}

// within runs a function with a time-out.
func within(ctx context.Context, limit time.Duration, do func(context.Context) ([]metric, error)) ([]metric, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}
