package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/sign"
)

// TestMistakes starts the program with unusable settings. It must name the cause in one line, exit with code
// 1, and leave nothing behind.
func TestMistakes(t *testing.T) {
	s := here(t)
	good := s.Kubeconfig(clustertest.Millrace)
	nowhere := s.kubeconfig(t, "https://"+loopback(t), "")
	stranger := s.kubeconfig(t, s.Server, "unknown-token")
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	must(t, os.WriteFile(settings, []byte("apiVersion: millrace.io/v1alpha1\nkind: MillraceConfiguration\nflags: {nonsense: true}\n"), 0o600))
	held, damaged, other := s.dataDirs(t)

	for _, c := range []struct {
		name string
		args []string
		data string // "": a directory that does not exist yet
		want string
	}{
		{"unknown controller", []string{"run", "--kubeconfig=" + good, "--controllers=nonsense"}, "", "nonsense"},
		{"unknown controller left out", []string{"run", "--kubeconfig=" + good, "--controllers=*,-nonsense"}, "", "nonsense"},
		{"unknown mode", []string{"run", "--kubeconfig=" + good, "--mode=sometimes"}, "", "sometimes"},
		{"unknown kind", []string{"run", "--kubeconfig=" + good, "--kinds=pods"}, "", "--kinds"},
		{"unknown flag", []string{"run", "--kubeconfig=" + good, "--replicas=3"}, "", "replicas"},
		{"unknown setting", []string{"run", "--kubeconfig=" + good, "--config=" + settings}, "", "nonsense"},
		{"no such kubeconfig", []string{"run", "--kubeconfig=/nonexistent/kubeconfig"}, "", "/nonexistent/kubeconfig"},
		{"no API server", []string{"run", "--kubeconfig=" + nowhere}, "", "does not answer"},
		{"refused credentials", []string{"run", "--kubeconfig=" + stranger}, "", "refuses our credentials"},
		{"no such root certificate", []string{"run", "--kubeconfig=" + good, "--root-ca-file=/nonexistent/ca.crt"}, "", "/nonexistent/ca.crt"},
		{"data directory is a file", []string{"run", "--kubeconfig=" + good}, file, file},
		{"data directory cannot be made", []string{"run", "--kubeconfig=" + good}, "/proc/millrace", "/proc/millrace"},
		{"data directory in use", []string{"run", "--kubeconfig=" + good}, held, "in use"},
		{"damaged data directory", []string{"run", "--kubeconfig=" + good}, damaged, "damaged"},
		{"streams with other settings", []string{"run", "--kubeconfig=" + good, "--stream-replicas=3"}, other, "num_replicas"},
		{"kept for too short a time", []string{"run", "--kubeconfig=" + good, "--stream-max-age=1m"}, "", "--stream-max-age"},
		{"no address of a bus", []string{"reconcilers"}, "none", "--nats-url"},
		{"no data directory for the bus", []string{"bus"}, "/proc/millrace", "/proc/millrace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fresh := filepath.Join(t.TempDir(), "data")
			args := c.args
			switch c.data {
			case "":
				args = append(slices.Clip(args), "--data-dir="+fresh)
			case "none":
			default:
				args = append(slices.Clip(args), "--data-dir="+c.data)
			}
			expectMistake(t, s.binary, args, c.want)
			if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the data directory was created (%v), want none after a mistake in the flags", err)
			}
		})
	}
}

// logged matches a line of the log, which is not part of the error.
var logged = regexp.MustCompile(`^[IWE]\d{4} `)

func expectMistake(t *testing.T, binary string, args []string, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append(args, "--health-address=")...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") })
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("millrace ended with %v, want exit status 1", err)
	}
	said := slices.DeleteFunc(strings.Split(strings.TrimSpace(output.String()), "\n"), logged.MatchString)
	if len(said) != 1 || !strings.HasPrefix(said[0], "millrace: ") || !strings.Contains(said[0], want) {
		t.Errorf("millrace printed\n%s\nwant one line \"millrace: ...\" with %q", output.String(), want)
	}
}

// kubeconfig writes the kubeconfig of a user that the cluster does not know.
func (s *site) kubeconfig(t *testing.T, server, token string) string {
	t.Helper()
	config := api.NewConfig()
	cluster := api.NewCluster()
	cluster.Server, cluster.CertificateAuthority = server, s.RootCAFile()
	config.Clusters["c"] = cluster
	user := api.NewAuthInfo()
	user.Token = token
	config.AuthInfos["u"] = user
	config.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return file
}

// dataDirs returns unusable data directories: one that a process holds, one with damaged turns, which no
// service could repeat, and one whose streams keep messages for 24 hours.
func (s *site) dataDirs(t *testing.T) (held, damaged, other string) {
	t.Helper()
	m := s.run(t, "--mode=off")
	other, damaged = m.dataDir, t.TempDir()
	m.stop(t)
	must(t, os.CopyFS(damaged, os.DirFS(other)))
	meta := filepath.Join(damaged, "jetstream", "$G", "streams", "TURN_replicaset-controller", "meta.inf")
	must(t, os.WriteFile(meta, []byte("no settings"), 0o600))
	held = t.TempDir()
	s.start(t, "bus", "bus", "--data-dir="+held, "--nats-listen="+loopback(t))
	return held, damaged, other
}

// TestBusComesLate starts a service before its bus, as happens when both start together. The service logs
// what it waits for, exits cleanly when it is told to, and continues by itself when the bus runs.
func TestBusComesLate(t *testing.T) {
	s := here(t)
	nats := loopback(t)
	keys, err := sign.Provide(t.TempDir())
	must(t, err)
	start := func(name string) *service {
		p := s.launch(t, name, append([]string{"reconcilers", "--nats-url=nats://user:secret@" + nats}, keys.Flags("reconcilers")...)...)
		within(t, patience, "the log names the bus", func() string {
			if log := tail(p.Log); !strings.Contains(log, nats) || strings.Contains(log, "secret") {
				return "it says " + log
			}
			return ""
		})
		return p
	}
	start("impatient").stop(t)
	p := start("patient")
	s.start(t, "bus", "bus", "--data-dir="+t.TempDir(), "--nats-listen="+nats, "--insecure-bus") // any user is admitted
	s.start(t, "watcher", "watcher", "--nats-url=nats://"+nats, "--kubeconfig="+s.Kubeconfig(clustertest.Watcher))
	p.ready(t)
}

// TestEndpoints requests the endpoints that an operator's probes and scrapes use.
func TestEndpoints(t *testing.T) {
	s := here(t)
	m := s.run(t)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		// A process that stood still for a moment has missed its own heartbeats, and reports that.
		within(t, patience, path+" is well", func() string {
			if code, body := m.get(t, path); code != http.StatusOK || body != "ok" {
				return fmt.Sprintf("it answers %d %q, want 200 ok", code, body)
			}
			return ""
		})
	}
	checks := ""
	within(t, patience, "/readyz?verbose is well", func() string {
		var code int
		if code, checks = m.get(t, "/readyz?verbose"); code != http.StatusOK {
			return checks
		}
		return ""
	})
	for _, service := range serviceNames {
		if !strings.Contains(checks, "[+]"+service+"-") {
			t.Errorf("/readyz?verbose names no check of the %s:\n%s", service, checks)
		}
	}
	_, metrics := m.get(t, "/metrics")
	for _, want := range []string{
		`workqueue_depth{name="deployment"`, `workqueue_adds_total{name="replicaset"`,
		"rest_client_requests_total{", "process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	begun := time.Now()
	m.stop(t) // expects exit code 0
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("millrace took %v to end after SIGTERM, want a minute at most", took)
	}
}
