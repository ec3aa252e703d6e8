package system

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/record"
)

const (
	// scarceStore is the smallest allowed store. The versions of the ConfigMaps of a megabyte exceed it,
	// although each object is within its bound.
	scarceStore        = "256Mi"
	flooders, versions = 30, 8
	// rewrites of the one ConfigMap and of the one custom object far exceed their bound.
	rewrites, notedTimes = 60, 120
)

// TestATenantCannotFillTheBus: a tenant rewrites large objects as fast as the API server allows, and the
// store is small. Deployments of other tenants still roll out, the bus makes room, and the record says which
// versions it lacks.
func TestATenantCannotFillTheBus(t *testing.T) {
	s := alone(t)
	private, public, err := notary.Generate("notary.test")
	must(t, err)
	dir := t.TempDir()
	signing, key := filepath.Join(dir, "key"), filepath.Join(dir, "key.pub")
	must(t, os.WriteFile(signing, []byte(private), 0o600))
	must(t, os.WriteFile(key, []byte(public), 0o600))
	must(t, s.defineKind(t.Context(), "billboard"))
	t.Cleanup(func() { must(t, s.removeKind(context.WithoutCancel(t.Context()), "billboard")) })
	m := s.run(t, "--nats-max-store="+scarceStore, "--redact=configmaps:", "--notary-key="+signing, "--notary-interval=1s")
	tenant, others := s.arena(t, "tenant"), s.arena(t, "others")
	within(t, patience, "a custom object can be created", func() string {
		noted := &unstructured.Unstructured{Object: map[string]any{"apiVersion": churn + "/v1", "kind": "billboard"}}
		noted.SetName("noted")
		_, err := s.dynamic.Resource(kindResource("billboard")).Namespace(tenant.Namespace).Create(t.Context(), noted, metav1.CreateOptions{})
		return made(err)
	})
	must(t, others.Deploy(t.Context(), "web", first, 3))
	until(t, others, clustertest.RolledOut("web", first, 3))
	before := max(rollout(t, others, second), rollout(t, others, first))

	flooding, ctx := errgroup.WithContext(t.Context())
	flooding.Go(func() error { return s.rewriteOne(ctx, tenant.Namespace, "flood") })
	flooding.Go(func() error { return s.noteOften(ctx, tenant.Namespace) })
	flooding.Go(func() error { return s.rewriteMany(ctx, tenant.Namespace) })
	flooded := make(chan error, 1)
	go func() { flooded <- flooding.Wait() }()
	fullest, slowest, rollouts := m.whileFlooded(t, flooded, func(i int) time.Duration { return rollout(t, others, []string{second, first}[i%2]) })
	t.Logf("a rollout took %v before, and of %d the slowest %v meanwhile; the store was %.0f%% full", before, rollouts, slowest, 100*fullest)
	if most := 10*before + 10*time.Second; slowest > most || rollouts == 0 {
		t.Errorf("%d rollouts while a tenant floods the store, and the slowest took %v; want some, and %v at most", rollouts, slowest, most)
	}
	if fullest < 0.7 {
		t.Errorf("the store was %.0f%% full at most, want over 70%%: the alert would not have fired", 100*fullest)
	}
	within(t, patience, "room is made", func() string {
		if used, cuts := m.metric(t, "millrace_bus_store_bytes")/m.metric(t, "millrace_bus_store_limit_bytes"), m.metric(t, "millrace_bus_store_cuts_total"); used > 0.8 || cuts == 0 {
			return fmt.Sprintf("%.0f%% are used, and streams were bounded %.0f times", 100*used, cuts)
		}
		return ""
	})
	s.leftOutIsSaid(t, asker{site: s, nats: m.nats, namespace: tenant.Namespace}, key)
	clear(t, others)
}

// leftOutIsSaid: readers of the record report the missing versions, not as damage. The newest version is
// recorded when there is room.
func (s *site) leftOutIsSaid(t *testing.T, r asker, key string) {
	t.Helper()
	// The marks of the first flood may already have been discarded for room.
	must(t, s.rewriteOne(t.Context(), r.namespace, "again"))
	newest, err := s.kube.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "again", metav1.GetOptions{})
	must(t, err)
	within(t, patience, "the newest version is recorded, and what was left out before it", func() string {
		var h record.History
		r.json(t, &h, "history", "cm/again", "--limit=0")
		left := uint64(0)
		for _, v := range h.Versions {
			if v.Left != nil {
				left += v.Left.Versions
			}
		}
		if last := h.Versions[len(h.Versions)-1]; last.ResourceVersion != newest.ResourceVersion || left < rewrites/4 {
			return fmt.Sprintf("the newest is %s, want %s, and %d were left out", last.ResourceVersion, newest.ResourceVersion, left)
		}
		return ""
	})
	if out, err := r.ask(t, "history", "cm/again", "--limit=0"); err != nil || !strings.Contains(out, "LEFT OUT") {
		t.Errorf("millrace history does not print LEFT OUT for the versions that were left out: %v\n%.2000s", err, out)
	}
	within(t, patience, "the record is verified", func() string {
		out, err := r.ask(t, "verify", "--key="+key)
		if err != nil || !strings.Contains(out, "were left out") {
			return fmt.Sprintf("%v\n%s", err, out)
		}
		return ""
	})
}

// rollout is the time until a Deployment runs another image.
func rollout(t *testing.T, a *clustertest.Arena, image string) time.Duration {
	t.Helper()
	began := time.Now()
	must(t, a.SetImage(t.Context(), "web", image))
	return until(t, a, clustertest.RolledOut("web", image, 3)).Sub(began)
}

// whileFlooded rolls out one image after the other until the flood is over, and returns the fullest level of
// the store, the slowest rollout, and the number of rollouts.
func (m *together) whileFlooded(t *testing.T, flooded <-chan error, rollout func(i int) time.Duration) (fullest float64, slowest time.Duration, rollouts int) {
	t.Helper()
	look := func() {
		fullest = max(fullest, m.metric(t, "millrace_bus_store_bytes")/m.metric(t, "millrace_bus_store_limit_bytes"))
	}
	for {
		slowest = max(slowest, rollout(rollouts))
		rollouts++
		look()
		select {
		case err := <-flooded:
			must(t, err)
			look()
			return fullest, slowest, rollouts
		default:
		}
	}
}

// metric is the value of a metric without labels.
func (p *service) metric(t *testing.T, name string) float64 {
	t.Helper()
	code, text := p.get(t, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok && code == http.StatusOK {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			must(t, err)
			return n
		}
	}
	t.Fatalf("/metrics has no %s (status %d)", name, code)
	return 0
}

// megabyte is the data of a ConfigMap, different for each i.
func megabyte(i int) map[string]string {
	text := strconv.Itoa(i)
	return map[string]string{"v": text + strings.Repeat("v", mostData-1-len(text))}
}

// rewriteOne rewrites one ConfigMap of a megabyte.
func (s *site) rewriteOne(ctx context.Context, namespace, name string) error {
	maps := s.kube.CoreV1().ConfigMaps(namespace)
	m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: megabyte(0)}, metav1.CreateOptions{})
	for i := 1; i < rewrites && err == nil; i++ {
		m.Data = megabyte(i)
		m, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	}
	return err
}

// rewriteMany rewrites many ConfigMaps, each within the bound of one object.
func (s *site) rewriteMany(ctx context.Context, namespace string) error {
	maps := s.kube.CoreV1().ConfigMaps(namespace)
	for i := range versions {
		for n := range flooders {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", n)}, Data: megabyte(i)}
			var err error
			if i == 0 {
				_, err = maps.Create(ctx, m, metav1.CreateOptions{})
			} else {
				_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// noteOften changes the largest possible annotation of an object of which only the metadata is recorded.
func (s *site) noteOften(ctx context.Context, namespace string) error {
	var err error
	boards := s.dynamic.Resource(kindResource("billboard")).Namespace(namespace)
	for i := 0; i < notedTimes && err == nil; i++ {
		text := strconv.Itoa(i)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"n":"%s%s"}}}`, text, strings.Repeat("n", mostNotes-1-len(text)))
		_, err = boards.Patch(ctx, "noted", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	return err
}
