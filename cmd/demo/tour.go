package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// tour shows what the record is for. Each stop does something to a Deployment, says in one sentence what there
// is to see, runs the command that shows it, and names one to try next.
type tour struct {
	*arena.Arena
	out      io.Writer
	millrace string // the program
	deadline time.Duration

	created time.Time // when the Deployment was complete
	deleted string    // the pod that was deleted
	heir    string    // the one in its place
}

// stop is one stop of a tour.
type stop struct {
	title, says string
	do          func(*tour, context.Context) error // may be nil
	shows       func(*tour) []string               // the arguments of millrace
	until       string                             // what the answer must have; it is asked again until then
	optional    string                             // what to say if the command fails; "": the tour fails
	next        func(*tour) string
}

// shown is how many lines of an answer are shown, and askAgain the pause before a question is repeated.
const (
	shown    = 14
	askAgain = 200 * time.Millisecond
)

var stops = []stop{
	{
		title: "A Deployment of three pods is created", says: "Every version of every object is on record: when, what changed, and who changed it.",
		do: (*tour).create, shows: func(*tour) []string { return []string{"history", "deployment/" + deployment, "--limit=4"} },
		next: func(*tour) string { return "tail    shows deltas, turns and outcomes as they are stored" },
	},
	{
		title: "A pod is deleted", says: "Its ReplicaSet replaces it. The record has the causes of the new pod, across controllers, back to where they began.",
		do: (*tour).heal, shows: func(t *tour) []string { return []string{"why", "pod/" + t.heir} }, until: "replicaset-controller",
		next: func(t *tour) string { return "history pod/" + t.deleted + "    shows the life of the pod that is gone" },
	},
	{
		title: "A quota of three pods is set, and the Deployment scaled to five", says: "Nothing happens. What the controllers decided, and what refuses it, answers why.",
		do: (*tour).forbid, shows: func(*tour) []string { return []string{"why-not", "deployment/" + deployment} }, until: "quota",
		next: func(*tour) string { return "lag    shows which controller stands still, if one does" },
	},
	{
		title: "The quota is removed, and two pods more are ready", says: "Any two moments can be compared.",
		do: (*tour).allow, shows: func(t *tour) []string {
			return []string{"diff", "deployment/" + deployment, "--from=" + t.created.Format(time.RFC3339)}
		}, until: "spec.replicas",
		next: func(t *tour) string {
			return "get pods --at=" + t.created.Format(time.RFC3339) + "    shows the pods of that moment, the deleted one among them"
		},
	},
	{
		title: "Every decision of this namespace is made once more", says: "The recorded turns are put through the controllers of this program, which must decide the same, byte for byte.",
		shows: func(*tour) []string { return []string{"replay"} },
		next: func(*tour) string {
			return "explain deployment/" + deployment + "    writes the last decision as a story, a test of its controller"
		},
	},
	{
		title: "One trace leads from your change to the running pods", says: "It passes the watcher, the reconcilers, the writer, the API server and etcd.",
		shows: func(*tour) []string { return []string{"trace", "deployment/" + deployment} }, optional: "Jaeger does not answer: make run starts it once it is built, and says so; changes from then on have traces",
		next: func(*tour) string { return "ui    shows all of this as a web page" },
	},
	{
		title: "What decides beside kube-controller-manager is a shadow", says: "With --shadow the controllers decide, write nothing, and are compared with the real ones. None is in shadow here.",
		shows: func(*tour) []string { return []string{"shadow"} },
		next: func(*tour) string {
			return "run --shadow='*'    on a cluster of yours: docs/shadow.md; --write-limits holds what deletes too much: docs/write-limits.md"
		},
	},
}

// guide plays the tour in a namespace of its own.
func guide(ctx context.Context, w io.Writer, kubeconfig string, deadline time.Duration) error {
	root, err := binaries.Checkout()
	if err != nil {
		return err
	}
	t := &tour{out: w, millrace: filepath.Join(root, "bin", "millrace"), deadline: deadline}
	if _, err := os.Stat(t.millrace); err != nil {
		return fmt.Errorf("find the program: %w; make run builds it", err)
	}
	client, err := arena.Connect(kubeconfig)
	if err != nil {
		return err
	}
	namespace := fmt.Sprintf("tour-%d", time.Now().Unix())
	if t.Arena, err = open(ctx, client, namespace, deadline); err != nil {
		return fmt.Errorf("a namespace with its service account did not come in %v: %w", deadline, err)
	}
	defer t.Close()
	fmt.Fprintln(w, "The program is bin/millrace, or kubectl millrace where that is in your PATH.")
	fmt.Fprintln(w)
	for i, s := range stops {
		if err := t.visit(ctx, i+1, s); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	fmt.Fprintf(w, "The namespace %s stays, so that you can try the commands above; kubectl delete namespace %s ends it.\n", namespace, namespace)
	return nil
}

// visit plays one stop.
func (t *tour) visit(ctx context.Context, n int, s stop) error {
	ctx, cancel := context.WithTimeout(ctx, t.deadline)
	defer cancel()
	fmt.Fprintf(t.out, "%d. %s\n   %s\n\n", n, s.title, s.says)
	if s.do != nil {
		if err := s.do(t, ctx); err != nil {
			return err
		}
	}
	args := append(s.shows(t), "--namespace="+t.Namespace)
	answer, err := t.ask(ctx, args, s.until)
	switch {
	case err != nil && s.optional == "":
		return err
	case err != nil:
		fmt.Fprintf(t.out, "   (%s)\n", s.optional)
	default:
		fmt.Fprintf(t.out, "   $ millrace %s\n%s", strings.Join(args, " "), indented(answer))
	}
	fmt.Fprintf(t.out, "\n   next: millrace %s\n\n", s.next(t))
	return nil
}

// ask runs a command until its answer has what it must have.
func (t *tour) ask(ctx context.Context, args []string, until string) (string, error) {
	for {
		out, err := exec.CommandContext(ctx, t.millrace, args...).CombinedOutput()
		switch {
		case err == nil && strings.Contains(string(out), until):
			return string(out), nil
		case until == "":
			return "", fmt.Errorf("millrace %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		if err := arena.Rest(ctx, askAgain); err != nil {
			return "", fmt.Errorf("millrace %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// indented are the first lines of an answer.
func indented(answer string) string {
	lines := strings.Split(strings.TrimRight(answer, "\n"), "\n")
	more := len(lines) - shown
	if more > 0 {
		lines = append(lines[:shown], fmt.Sprintf("... and %d lines more", more))
	}
	return "   " + strings.Join(lines, "\n   ") + "\n"
}

func (t *tour) create(ctx context.Context) error {
	if err := t.Deploy(ctx, deployment, first, replicas); err != nil {
		return err
	}
	_, err := t.Until(ctx, arena.RolledOut(deployment, first, replicas))
	t.created = time.Now().Add(time.Second).Truncate(time.Second) // as the commands write moments
	return err
}

func (t *tour) heal(ctx context.Context) (err error) {
	if err := arena.Rest(ctx, time.Until(t.created)); err != nil {
		return err
	}
	wanted := arena.Replaced(t.Created(), replicas)
	if t.deleted, err = t.DeletePod(ctx); err != nil {
		return err
	}
	if _, err := t.Until(ctx, wanted); err != nil {
		return err
	}
	t.heir, err = t.NewestPod(ctx)
	return err
}

func (t *tour) forbid(ctx context.Context) error {
	if err := t.Quota(ctx, replicas); err != nil {
		return err
	}
	_, err := t.Scale(ctx, deployment, replicas+2)
	return err
}

func (t *tour) allow(ctx context.Context) error {
	if err := t.RemoveQuota(ctx); err != nil {
		return err
	}
	_, err := t.Until(ctx, arena.RolledOut(deployment, first, replicas+2))
	return err
}
