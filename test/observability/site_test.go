package observability

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/sign"
)

// patience is the time-out of every step on a busy machine.
const patience = 3 * time.Minute

// The names of the observed objects, which must appear in no metric.
const (
	namespace  = "watched-namespace"
	deployment = "watched-deployment"
)

var theSite struct {
	sync.Once
	*site
	err error
}

// site is a control plane with the services of Millrace, after some work.
type site struct {
	cluster *clustertest.Cluster
	kcm     map[string]family // of kube-controller-manager, which ran here before
	ours    map[string]family // of all services
	decided string            // the reconcilers' metrics as OpenMetrics

	theirs, known []string // the metrics that the test waits for in kcm and in ours
}

func TestMain(m *testing.M) {
	code := clustertest.Run(m)
	if s := theSite.site; s != nil && s.cluster != nil {
		if err := s.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		_ = os.RemoveAll(s.cluster.Dir)
	}
	os.Exit(code)
}

// here returns the site; the first call starts it.
func here(t *testing.T) *site {
	t.Helper()
	theSite.Do(func() {
		theSite.site = &site{theirs: listed(t), known: listed(t)}
		documented, _, _ := rows(t)
		for name, r := range documented {
			if !r.rare {
				theSite.known = append(theSite.known, name)
			}
		}
		theSite.err = theSite.begin(context.WithoutCancel(t.Context()))
	})
	if theSite.err != nil {
		t.Fatal(theSite.err)
	}
	return theSite.site
}

func (s *site) begin(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "millrace-observability-")
	if err != nil {
		return err
	}
	if s.cluster, err = clustertest.Launch(ctx, clustertest.Options{Dir: dir, Nodes: 2, Lean: true, Output: os.Stderr}); err != nil {
		return err
	}
	if s.kcm, err = s.watchKCM(ctx); err != nil {
		return err
	}
	s.ours, err = s.watchOurs(ctx)
	return err
}

// watchKCM runs kube-controller-manager's own controllers on the work, and stops it.
func (s *site) watchKCM(ctx context.Context) (map[string]family, error) {
	kcm, err := s.cluster.StartKCM(ctx, 0, clustertest.KCM{
		Controllers: "deployment-controller,replicaset-controller,garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller," +
			"statefulset-controller,job-controller,cronjob-controller,ttl-after-finished-controller,node-ipam-controller," +
			"endpointslice-controller,endpointslice-mirroring-controller,ephemeral-volume-controller,node-lifecycle-controller,taint-eviction-controller," +
			"horizontal-pod-autoscaler-controller,device-taint-eviction-controller,persistentvolume-binder-controller",
		Args: []string{"--authorization-always-allow-paths=/metrics,/healthz"},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = kcm.Stop() }()
	if err := s.work(ctx, namespace+"-of-kcm"); err != nil {
		return nil, fmt.Errorf("work with kube-controller-manager: %w", err)
	}
	log, err := os.ReadFile(kcm.Log)
	if err != nil {
		return nil, err
	}
	serving := regexp.MustCompile(`Serving securely on ([0-9.:]+)`).FindSubmatch(log)
	if serving == nil {
		return nil, errors.New("kube-controller-manager does not say where it serves")
	}
	return whole(ctx, s.theirs, func() (map[string]family, bool, error) {
		found, err := scrape(ctx, fmt.Sprintf("https://%s/metrics", serving[1]))
		return found, true, err
	})
}

// whole repeats look until all expected metrics exist, because an event is counted a moment after it is
// visible. After the time-out it returns what there is, and the tests report what is missing.
func whole(ctx context.Context, expected []string, look func() (found map[string]family, enough bool, err error)) (map[string]family, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		found, enough, err := look()
		if err != nil {
			return nil, err
		}
		if enough && !slices.ContainsFunc(expected, func(name string) bool { _, ok := found[name]; return !ok }) {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, nil
		case <-again.C:
		}
	}
}

// watchOurs runs the services of Millrace on the same work, each in a process of its own.
func (s *site) watchOurs(ctx context.Context) (map[string]family, error) {
	binary := filepath.Join(s.cluster.Dir, "millrace")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/millrace/millrace/cmd/millrace")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build millrace: %w\n%s", err, out)
	}
	port, err := clustertest.FreePort()
	if err != nil {
		return nil, err
	}
	unused, err := clustertest.FreePort()
	if err != nil {
		return nil, err
	}
	keys, err := sign.Provide(filepath.Join(s.cluster.Dir, "signing"))
	if err != nil {
		return nil, err
	}
	bus := fmt.Sprintf("127.0.0.1:%d", port)
	rootCA, url := "--root-ca-file="+s.cluster.RootCAFile(), "--nats-url=nats://"+bus
	// No collector receives the spans; the services must tolerate that.
	traces := "--tracing-endpoint=127.0.0.1:" + strconv.Itoa(unused)
	kubeconfig := "--kubeconfig=" + s.cluster.Kubeconfig(clustertest.Millrace)
	var pages []string
	for _, args := range [][]string{
		{"bus", "--nats-listen=" + bus, "--data-dir=" + filepath.Join(s.cluster.Dir, "bus")},
		{"watcher", url, rootCA, traces, kubeconfig},
		{"reconcilers", url, rootCA, traces},
		{"writer", url, rootCA, traces, kubeconfig},
	} {
		address, err := s.start(ctx, binary, append(args, keys.Flags(args[0])...))
		if err != nil {
			return nil, fmt.Errorf("start millrace %s: %w", args[0], err)
		}
		pages = append(pages, address+"/metrics")
	}
	if err := s.work(ctx, namespace); err != nil {
		return nil, fmt.Errorf("work with Millrace: %w", err)
	}
	return whole(ctx, s.known, func() (found map[string]family, enough bool, err error) {
		open, err := page(ctx, pages[2], "application/openmetrics-text; version=1.0.0")
		if err != nil {
			return nil, false, err
		}
		s.decided = string(open)
		var scrapes []map[string]family
		for _, address := range pages {
			found, err := scrape(ctx, address)
			if err != nil {
				return nil, false, err
			}
			scrapes = append(scrapes, found)
		}
		return union(scrapes...), len(unled(s.decided)) == 0, nil
	})
}

// start starts a service, waits until it is ready, and returns its address.
func (s *site) start(ctx context.Context, binary string, args []string) (address string, err error) {
	port, err := clustertest.FreePort()
	if err != nil {
		return "", err
	}
	health := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := s.cluster.Run("millrace-"+args[0], binary, append(args, "--health-address="+health, "--logging-format=json", "-v=3")...)
	if err != nil {
		return "", err
	}
	address = "http://" + health
	return address, p.Ready(ctx, address+"/readyz")
}

// work gives every controller something to do, twice.
func (s *site) work(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := clustertest.Connect(s.cluster.Kubeconfig(clustertest.Admin))
	if err != nil {
		return err
	}
	a, err := client.Open(ctx, name, false)
	if err != nil {
		return err
	}
	defer a.Close()
	ran, err := s.errands(ctx, name)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		do   func() error
		then clustertest.Condition
	}{
		{func() error { return a.Deploy(ctx, deployment, "one", 4) }, clustertest.Ready(4)},
		{func() error { _, err := a.Scale(ctx, deployment, 2); return err }, clustertest.Ready(2)},
		{func() error { return a.DeleteDeployments(ctx) }, clustertest.Empty()},
	} {
		if err := step.do(); err != nil {
			return err
		}
		if _, err := a.Until(ctx, step.then); err != nil {
			return err
		}
	}
	return ran()
}

// scrape reads a page of metrics.
func scrape(ctx context.Context, address string) (map[string]family, error) {
	text, err := page(ctx, address, "")
	if err != nil {
		return nil, err
	}
	return parse(bytes.NewReader(text))
}

// page gets a page in a format. It does not verify the certificate: a server on this machine has issued it
// for itself.
func page(ctx context.Context, address, format string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", format)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s: %w\n%.500s", address, response.Status, err, text)
	}
	return text, nil
}
