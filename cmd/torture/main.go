// Command torture runs Millrace as processes on a real control plane, under the load of users, and kills,
// stops and cuts off its parts: its services, the servers of its bus, the API server and etcd. Before that it
// restores etcd from a backup, and takes the disk of a server of the bus away. Afterwards an independent
// checker compares three books: the storage, the audit log and the record. torture fails if a rule was
// broken, a process of Millrace ended by itself, a fault could not be done, or work stood still for longer
// than docs/reliability.md promises.
//
//	go run ./cmd/torture --seed=7 --faults=500 --time=15m
//
// The schedule of faults is a pure function of the seed; --plan prints it. The exact times of events depend
// on the machine.
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
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
	"github.com/millrace/millrace/cmd/internal/fault"
)

// options are the command line flags.
type options struct {
	seed     uint64
	faults   int
	time     time.Duration
	singles  int
	disks    bool
	calm     time.Duration
	patience time.Duration
	size     size
	users    int
	pause    time.Duration
	dir      string
	report   string
	evidence string
	plan     bool
	judge    string
	export   string
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the schedule of faults and of the users' actions")
	flag.IntVar(&o.faults, "faults", 500, "number of faults")
	flag.DurationVar(&o.time, "time", 0, "time over which the faults are spread; 0 means 1.8 s for each fault")
	flag.IntVar(&o.singles, "singles", 25, "number of single kills, stops and cuts before the faults, each alone, to measure the hand-over")
	flag.BoolVar(&o.disks, "disks", true, "first restore etcd from a backup, and lose and damage disks of the bus; the checks of the storage cover the time after the restore")
	flag.DurationVar(&o.calm, "calm", 20*time.Second, "time under load before the first fault; hand-overs are compared with it")
	flag.DurationVar(&o.patience, "patience", 5*time.Minute, "time limit after the last fault for all controllers to finish their work")
	flag.IntVar(&o.size.buses, "buses", 3, "NATS servers: 1 or 3")
	flag.IntVar(&o.size.replicas, "replicas", 2, "processes of each service")
	flag.IntVar(&o.users, "users", 3, "simulated users")
	flag.DurationVar(&o.pause, "pause", 1500*time.Millisecond, "average pause of a user between two actions")
	flag.StringVar(&o.dir, "dir", "", "`directory` for logs, streams and the recorded history, which is kept; empty: a temporary one that is deleted after success")
	flag.StringVar(&o.report, "report", "", "JSON `file` for the report; empty: none")
	flag.StringVar(&o.evidence, "evidence", "", "JSON `file` for the figures, such as docs/evidence/torture.json; empty: none")
	flag.StringVar(&o.export, "export", "", "`file` for an export of the record before the checks, as by millrace export; empty: none")
	flag.BoolVar(&o.plan, "plan", false, "print the schedule of faults and stop")
	flag.StringVar(&o.judge, "judge", "", "check the history that an earlier run left in this `file`, history.json.gz, and stop")
	flag.Parse()
	if o.time == 0 {
		o.time = time.Duration(o.faults) * usual
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "torture: %v\n", err)
		os.Exit(1)
	}
}

// usual is the default time for each fault.
const usual = 1800 * time.Millisecond

// errBroken reports that a rule was broken; the printed report says which.
var errBroken = errors.New("not everything held; see above")

func run(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.plan {
		for _, f := range fault.Plan(o.seed, o.faults, o.time, o.size.site()) {
			fmt.Println(f)
		}
		return nil
	}
	if o.judge != "" {
		return judgeAgain(o.judge)
	}
	dir, err := o.place()
	if err != nil {
		return err
	}
	commit, err := evidence.Commit(ctx)
	if err != nil && o.evidence != "" {
		return err
	}
	r := &session{options: o, dir: dir, commit: commit, begun: time.Now()}
	err = r.play(ctx)
	if err == nil && o.dir == "" {
		return os.RemoveAll(dir)
	}
	fmt.Printf("logs, streams and books are in %s\n", dir)
	return err
}

func (o options) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("read the command line: %q is not expected; see --help", flag.Arg(0))
	case o.faults < 1 || o.time <= 0 || o.singles < 0:
		return fmt.Errorf("read the command line: %d faults in %v after %d; want at least one, in some time, after none or more", o.faults, o.time, o.singles)
	case o.size.buses != 1 && o.size.buses != 3:
		return fmt.Errorf("read the command line: --buses=%d; want 1 or 3", o.size.buses)
	case o.size.replicas < 1 || o.users < 1 || o.pause <= 0:
		return errors.New("read the command line: --replicas, --users and --pause must be more than nothing")
	}
	return nil
}

func (o options) place() (string, error) {
	if o.dir == "" {
		return os.MkdirTemp("", "millrace-torture-")
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory: %w", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		return "", errors.Join(fmt.Errorf("use %s: it is not empty; name another --dir", dir), err)
	}
	return dir, nil
}

// compile builds the program under test.
func compile(ctx context.Context, into string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", into, "github.com/millrace/millrace/cmd/millrace")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build millrace: %w\n%s", err, out)
	}
	return nil
}
