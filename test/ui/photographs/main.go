// Command photographs makes the pictures of docs/ui.md: it starts a control plane and Millrace on it, rolls a
// Deployment out and deletes one of its Pods, and takes screenshots of the page about that, in both themes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/test/ui/browser"
	"github.com/millrace/millrace/test/ui/program"
)

const (
	namespace  = "shop"
	deployment = "web"
	// patience is the time-out of each step of the story.
	patience = 3 * time.Minute
)

func main() {
	out := flag.String("out", filepath.Join("docs", "ui"), "`directory` of the pictures")
	only := flag.String("only", "", "`part` of the names of the pictures that are taken (default all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := photograph(ctx, *out, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func photograph(ctx context.Context, out, only string) (err error) {
	dir, err := os.MkdirTemp("", "millrace-photographs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, err := program.Build(dir)
	if err != nil {
		return err
	}
	cluster, err := clustertest.Launch(ctx, clustertest.Options{Dir: filepath.Join(dir, "cluster"), Nodes: 3, Lean: true, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	port, err := clustertest.FreePort()
	if err != nil {
		return err
	}
	nats := fmt.Sprintf("127.0.0.1:%d", port)
	run, err := program.Start(binary, "", "run", "--kubeconfig="+cluster.Kubeconfig(clustertest.Millrace), "--root-ca-file="+cluster.RootCAFile(),
		"--data-dir="+filepath.Join(dir, "streams"), "--nats-listen="+nats, "--health-address=")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Stop()) }()
	pod, begun, err := play(ctx, cluster)
	if err != nil {
		return fmt.Errorf("play the story: %w", err)
	}
	page, err := program.Start(binary, "The page is at ", "ui", "--nats-url=nats://"+nats, "--listen=127.0.0.1:0", "--no-token")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Stop()) }()
	return take(ctx, out, only, page.Said, pod, begun)
}

// play runs the story: a user creates a Deployment, sets another image, and deletes a Pod. It returns the
// name of the replacement, and the time of the image change.
func play(ctx context.Context, cluster *clustertest.Cluster) (pod string, rolled time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := clustertest.Connect(cluster.Kubeconfig(clustertest.Admin))
	if err != nil {
		return "", rolled, err
	}
	if err := client.CreateNamespace(ctx, namespace); err != nil {
		return "", rolled, err
	}
	if err := client.AwaitAccount(ctx, namespace); err != nil {
		return "", rolled, err
	}
	a, err := client.Watch(ctx, namespace)
	if err != nil {
		return "", rolled, err
	}
	defer a.Close()
	for _, step := range []struct {
		do   func() error
		then clustertest.Condition
	}{
		{func() error { return a.Deploy(ctx, deployment, "nginx:1.28", 3) }, clustertest.RolledOut(deployment, "nginx:1.28", 3)},
		{func() error { rolled = time.Now(); return a.SetImage(ctx, deployment, "nginx:1.29") }, clustertest.RolledOut(deployment, "nginx:1.29", 3)},
		{func() (err error) { pod, err = a.DeletePod(ctx); return err }, clustertest.Ready(3)},
	} {
		if err := step.do(); err != nil {
			return "", rolled, err
		}
		if _, err := a.Until(ctx, step.then); err != nil {
			return "", rolled, err
		}
	}
	return pod, rolled, nil
}

// take takes the pictures.
func take(ctx context.Context, out, only, address, pod string, rolled time.Time) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	b, err := browser.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer b.Close()
	object := func(kind, name, tab string) string {
		return url.Values{"ns": {namespace}, "kind": {kind}, "name": {name}, "tab": {tab}}.Encode()
	}
	moment := url.Values{"ns": {namespace}, "at": {rolled.Add(600 * time.Millisecond).UTC().Format(time.RFC3339Nano)}}.Encode()
	for _, p := range []picture{
		{"namespace-light", "light", 1440, 900, "ns=" + namespace, ".row .status"},
		{"namespace-dark", "dark", 1440, 900, "ns=" + namespace, ".row .status"},
		{"moment-dark", "dark", 1440, 900, moment, ".row .status"},
		{"past-light", "light", 1440, 1000, object("deployments.apps", deployment, "past"), ".past-item"},
		{"why-light", "light", 1680, 1050, object("pods", pod, "why") + "&field=spec.containers", ".edges .head"},
		{"why-dark", "dark", 1680, 1050, object("pods", pod, "why") + "&field=spec.containers", ".edges .head"},
		{"compare-dark", "dark", 1440, 700, object("deployments.apps", deployment, "compare"), ".diff"},
		{"phone-dark", "dark", 390, 844, "ns=" + namespace, ".row"},
	} {
		if !strings.Contains(p.name, only) {
			continue
		}
		if err := p.take(b, out, address); err != nil {
			return err
		}
	}
	return nil
}

// picture is a screenshot of a view.
type picture struct {
	name, theme   string
	width, height int
	query         string
	ready         string // a selector of an element that must be visible
}

func (p picture) take(b *browser.Browser, out, address string) error {
	page, err := b.Page(p.width, p.height)
	if err != nil {
		return err
	}
	defer page.Close()
	if err := errors.Join(page.Theme(p.theme), page.Go(address+"?"+p.query), page.Until(fmt.Sprintf("document.querySelector(%q) && !document.querySelector('[aria-busy]')", p.ready))); err != nil {
		return fmt.Errorf("look at %s: %w", p.name, err)
	}
	png, err := page.Photograph()
	if err != nil {
		return fmt.Errorf("take %s: %w", p.name, err)
	}
	file := filepath.Join(out, p.name+".png")
	if err := os.WriteFile(file, png, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s  %d kB\n", file, len(png)/1000)
	return nil
}
