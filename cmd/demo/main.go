// Command demo takes a Deployment through its life on a running cluster: create, heal, roll out, roll back,
// delete. It prints what happened in each step and how long the step took, and ends with an error when a step
// takes too long.
//
// With --tour it breaks things, too, and asks the record about what happened.
//
// It uses the cluster of --kubeconfig, else of $KUBECONFIG, else the one that "make run" started in this
// checkout.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

const (
	deployment = "web"
	replicas   = 3
	first      = "nginx:1.28"
	second     = "nginx:1.29"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file` of the cluster (default $KUBECONFIG, then the cluster of make run)")
	deadline := flag.Duration("deadline", 30*time.Second, "time limit of each step")
	guided := flag.Bool("tour", false, "show a tour of the record instead, with a command after each step")
	flag.Parse()
	play := demonstrate
	if *guided {
		play = guide
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := play(ctx, os.Stdout, locate(*kubeconfig), *deadline)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// locate finds the kubeconfig; "" means the usual rules.
func locate(named string) string {
	if named != "" || os.Getenv("KUBECONFIG") != "" {
		return named
	}
	root, err := binaries.Checkout()
	if err != nil {
		return ""
	}
	file := localcluster.DevKubeconfig(root)
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// step is one action of a user, and its expected result.
type step struct {
	title string
	do    func(context.Context, *arena.Arena) (string, error)
	then  func(*arena.Arena) arena.Condition
}

var steps = []step{
	{
		title: "create a deployment of 3",
		do: func(ctx context.Context, a *arena.Arena) (string, error) {
			return "", a.Deploy(ctx, deployment, first, replicas)
		},
		then: func(*arena.Arena) arena.Condition { return arena.RolledOut(deployment, first, replicas) },
	},
	{
		title: "delete a pod",
		do: func(ctx context.Context, a *arena.Arena) (string, error) {
			name, err := a.DeletePod(ctx)
			return name + " was deleted; ", err
		},
		then: func(a *arena.Arena) arena.Condition { return arena.Replaced(a.Created(), replicas) },
	},
	{
		title: "set another image",
		do: func(ctx context.Context, a *arena.Arena) (string, error) {
			return "", a.SetImage(ctx, deployment, second)
		},
		then: func(*arena.Arena) arena.Condition { return arena.RolledOut(deployment, second, replicas) },
	},
	{
		title: "undo the rollout",
		do: func(ctx context.Context, a *arena.Arena) (string, error) {
			return "", a.Undo(ctx, deployment)
		},
		then: func(*arena.Arena) arena.Condition { return arena.RolledOut(deployment, first, replicas) },
	},
	{
		title: "delete the deployment",
		do: func(ctx context.Context, a *arena.Arena) (string, error) {
			return "", a.DeleteDeployments(ctx)
		},
		then: func(*arena.Arena) arena.Condition { return arena.Empty() },
	},
}

func demonstrate(ctx context.Context, w io.Writer, kubeconfig string, deadline time.Duration) error {
	client, err := arena.Connect(kubeconfig)
	if err != nil {
		return err
	}
	namespace := fmt.Sprintf("demo-%d", time.Now().Unix())
	begun := time.Now()
	a, err := open(ctx, client, namespace, deadline)
	if err != nil {
		return fmt.Errorf("a namespace with its service account did not come in %v: %w", deadline, err)
	}
	defer a.Close()
	say(w, "create a namespace", namespace+" has its default service account", time.Since(begun))
	for _, s := range steps {
		if err := s.play(ctx, w, a, deadline); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	fmt.Fprintln(w, "all of it happened")
	return a.Remove(ctx)
}

// open opens an arena that survives the demo. Its service account must exist before the deadline.
func open(ctx context.Context, client *arena.Client, namespace string, deadline time.Duration) (*arena.Arena, error) {
	if err := client.CreateNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := client.AwaitAccount(waiting, namespace); err != nil {
		return nil, err
	}
	return client.Watch(ctx, namespace)
}

func (s step) play(ctx context.Context, w io.Writer, a *arena.Arena, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	wanted := s.then(a)
	begun := time.Now()
	remark, err := s.do(ctx, a)
	if err != nil {
		return err
	}
	at, err := a.Until(ctx, wanted)
	if err != nil {
		return err
	}
	say(w, s.title, remark+wanted.String(), at.Sub(begun))
	return nil
}

func say(w io.Writer, title, happened string, took time.Duration) {
	fmt.Fprintf(w, "%-26s %7s   %s\n", title, took.Round(time.Millisecond), happened)
}
