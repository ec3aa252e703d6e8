package command

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// TestNoBodyIsLogged: at the highest verbosity the log says which requests are made, and
// nothing of what is in them or in the answers.
func TestNoBodyIsLogged(t *testing.T) {
	const canary = "canary-2Lm8-never-logged"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"stringData":{"p":"` + canary + `"}}`))
	}))
	defer server.Close()
	lines, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	stderr := os.Stderr
	os.Stderr = lines
	defer func() { os.Stderr = stderr }()
	state := klog.CaptureState()
	defer state.Restore()
	if err := logsapi.ResetForTest(nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logsapi.ResetForTest(nil) }()
	cmd := program{use: "ask", run: func(ctx context.Context) error {
		client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
			GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(),
		}})
		if err != nil {
			return err
		}
		klog.FromContext(ctx).V(7).Info("asked at level 7")
		named := klog.NewContext(ctx, klog.FromContext(ctx).WithName("a").WithValues("k", "v"))
		_, err = client.Patch(types.MergePatchType).AbsPath("/api/v1/namespaces/default/secrets/a").Body([]byte(`{"p":"` + canary + `"}`)).Do(named).Raw()
		return err
	}}.cobra()
	cmd.SetArgs([]string{"-v=10", "--vmodule=request=10"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	klog.Flush()
	told, err := os.ReadFile(lines.Name())
	if err != nil || !strings.Contains(string(told), "asked at level 7") || strings.Contains(string(told), canary) {
		t.Errorf("the log is\n%s (%v)", told, err)
	}
}
