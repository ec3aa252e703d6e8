package program

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/health/delegated"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/plan"
)

const canary = "canary-2Lm8-never-logged"

// TestNoBodyIsLogged: at the highest verbosity the log has the requests, and no contents of
// requests or responses, for each client of a service and every context.
func TestNoBodyIsLogged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		kind, version := "Secret", "v1"
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			kind, version = "TokenReview", "authentication.k8s.io/v1"
		case r.URL.Query().Get("watch") != "":
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"` + canary + `"}}}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"` + kind + `","apiVersion":"` + version + `","metadata":{"name":"a","annotations":{"p":"` + canary + `"}},"status":{"error":"` + canary + `"}}`))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	for name, ask := range map[string]func(ctx context.Context, t *testing.T){
		"watcher": func(ctx context.Context, _ *testing.T) {
			from := made(source.New(config))
			for _, kind := range []kinds.Kind{kinds.Secrets.Kind, kinds.ConfigMaps.Kind} {
				k := made(from.Kind(kind))
				_, _, _ = k.Position(ctx, "", "a")
				if w, err := k.Watch(ctx, "1"); err == nil {
					<-w.ResultChan()
					w.Stop()
				}
			}
		},
		"writer": func(ctx context.Context, t *testing.T) {
			actor := apply.Actor{Controller: "a", Identity: "a"}
			door := made(apply.New(apply.Config{REST: config, Impersonate: true}, []apply.Actor{actor}))
			door.Do(ctx, actor, plan.Request{
				Verb: plan.Create, Kind: kinds.Pods.Name, Version: "v1", Namespace: "a", Name: "a", Body: []byte(`{"p":"` + canary + `"}`),
			}, "")
			door.Do(ctx, actor, plan.Request{
				Verb: plan.Search, Subresource: query.SubUsers, Kind: kinds.PersistentVolumeClaims.Name, Version: "v1", Namespace: "a", Name: "a",
			}, "")
		},
		"health of the writer": func(ctx context.Context, t *testing.T) {
			_ = made(apply.New(apply.Config{REST: config}, nil)).Ready(ctx)
		},
		"discovery": func(ctx context.Context, t *testing.T) {
			_, _ = made(discovery.NewDiscoveryClientForConfig(config)).ServerPreferredNamespacedResources()
		},
		"health delegation": func(ctx context.Context, t *testing.T) {
			o := delegated.Defaults()
			o.Authentication, o.Authorization, o.SkipLookup = kubeconfigOf(t, server.URL), kubeconfigOf(t, server.URL), true
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+canary)
			_ = made(delegated.Begin(ctx, o)).May(r)
		},
	} {
		for format, args := range map[string][]string{
			"text": {"-v=10", "--vmodule=request=10,round_trippers=9"}, "the lowest level with bodies": {"-v=8"}, "one file": {"--vmodule=bodies_test=7,request=10,round_trippers=9"}, "JSON": {"-v=10", "--logging-format=json"},
		} {
			t.Run(name+" in "+format, func(t *testing.T) {
				told := loggedBy(t, args, func(ctx context.Context) error {
					klog.FromContext(ctx).V(7).Info("asked at level 7")
					klog.V(8).Infof("unstructured %s", canary)
					ask(ctx, t)
					ask(context.Background(), t)
					ask(klog.NewContext(context.Background(), klog.Background().WithName("a").WithValues("k", "v")), t)
					return nil
				})
				if !strings.Contains(told, "asked at level 7") || !strings.Contains(told, server.URL) || strings.Contains(told, canary) {
					t.Errorf("the log is\n%s", told)
				}
			})
		}
	}
}

// TestTheLevelsOfFilesAreLowered: --vmodule allows no bodies either.
func TestTheLevelsOfFilesAreLowered(t *testing.T) {
	logging := logsapi.NewLoggingConfiguration()
	logging.VModule = logsapi.VModuleConfiguration{{FilePattern: "request", Verbosity: 8}, {FilePattern: "cache", Verbosity: 3}}
	if !withoutBodies(logging) || logging.VModule[0].Verbosity != 7 || logging.VModule[1].Verbosity != 3 {
		t.Errorf("the levels of files are %+v", logging.VModule)
	}
	if withoutBodies(logging) {
		t.Error("levels without bodies are lowered")
	}
}

// made is the result of a function that must not fail.
func made[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// kubeconfigOf is the file of a kubeconfig of a server.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],"clusters":[{"name":"a","cluster":{"server":"` + server + `"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// loggedBy is the log of a command that was called with args.
func loggedBy(t *testing.T, args []string, run func(context.Context) error) string {
	t.Helper()
	lines := made(os.Create(filepath.Join(t.TempDir(), "log")))
	defer lines.Close()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = lines, lines
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	defer klog.CaptureState().Restore()
	if err := logsapi.ResetForTest(nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logsapi.ResetForTest(nil) }()
	cmd := Program{Use: "ask", Run: run}.Command()
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	klog.Flush()
	return string(made(os.ReadFile(lines.Name())))
}
