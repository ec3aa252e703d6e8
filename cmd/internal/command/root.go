// Package command is the command line of millrace: its commands, and what each of them puts together from
// the packages of flags beside it. It also turns signals and errors into the end of the process, with an exit
// code. It decides nothing.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/logs"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader"
	"github.com/millrace/millrace/cmd/internal/reader/audit"
)

// exitFound is the exit code of verify if it could read the record and found damage.
const exitFound = 2

// Main runs the command line and returns the exit code: 0 for success, 1 after an error, which
// it has printed, and 2 if verify has found damage.
func Main(args []string) int {
	ctx, stop := signalled()
	defer stop()
	root := newRoot()
	root.SetArgs(underName(root, filepath.Base(os.Args[0]), args))
	err := root.ExecuteContext(ctx)
	logs.FlushLogs()
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
	if errors.Is(err, audit.ErrFound) {
		return exitFound
	}
	return 1
}

// plugin is the program's name as a kubectl plug-in, and completer the name under which
// kubectl runs it to complete the plug-in's command line.
const (
	plugin    = "kubectl-millrace"
	completer = "kubectl_complete-millrace"
)

// signalled is a context that the first signal cancels; a second signal kills the process
// at once.
//
// Upstream: k8s.io/apiserver/pkg/server, SetupSignalHandler.
func signalled() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// underName adapts the command line to the name under which the program was called.
func underName(root *cobra.Command, name string, args []string) []string {
	switch name {
	case plugin:
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl millrace"}
	case completer:
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// Root returns the command line, for programs that describe it.
func Root() *cobra.Command { return newRoot() }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Kubernetes' controllers as event-sourced services on NATS JetStream",
		Long: `Millrace runs the controllers of kube-controller-manager as event-sourced
services. The watcher turns list/watch deltas of the API server into JetStream
streams, the reconcilers decide on them, and the writer applies what they decided.

Every flag can also be set as MILLRACE_<FLAG> in the environment or under "flags:"
in the file given by --config; the command line wins, then the environment.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       program.Version,
		Args:          program.UnknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(program.UnknownFlag)
	root.AddCommand(newRun(), newDev(), newBus(), newControlPlane(), process.NewHealthcheck(), newNotary(), newRBAC(), credentials.NewSigningKeys(), newProvisioner(), newDoctor())
	root.AddCommand(newServices()...)
	root.AddCommand(newTrace(), newUI())
	root.AddCommand(reader.Commands(program.Version)...)
	group(root)
	return root
}

// commandGroups are the commands of millrace in the order of its help.
var commandGroups = []struct {
	title    string
	commands []string
}{
	{"Run the controllers:", []string{"dev", "run", "watcher", "reconcilers", "writer", "bus", "provisioner", "notary"}},
	{"Prepare and check an installation:", []string{"doctor", "rbac", "signing-keys", "control-plane", "healthcheck"}},
	{"Read the record:", []string{"history", "get", "diff", "why", "why-not", "tail", "lag", "parked", "retention", "shadow", "trace", "ui"}},
	{"Decide about held writes:", []string{"held", "approve", "deny"}},
	{"Move controllers:", []string{"takeover", "giveback"}},
	{"Judge the record, or carry it elsewhere:", []string{"replay", "explain", "verify", "export", "import"}},
}

// group puts the commands of the root into their groups.
func group(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = g.title
				}
			}
		}
	}
}
