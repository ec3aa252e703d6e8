package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

// TestWriteLimits plays a mistake: a Deployment is scaled to 0. A write limit lets two pods go and holds
// the rest. A person who approves lets them go; a person who denies keeps them, and the record says who.
func TestWriteLimits(t *testing.T) {
	s := here(t)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	must(t, os.WriteFile(file, []byte(`apiVersion: millrace.io/v1alpha1
kind: WriteLimits
limits:
- {name: pods, controllers: [replicaset-controller], verbs: [delete], kinds: [pods], namespaces: [held], max: 2, within: 1h}
`), 0o600))
	m := s.run(t, "--write-limits="+file)
	r := asker{site: s, nats: m.nats, namespace: "held"}
	a := s.arena(t, "held")
	for i, verb := range []string{"approve", "deny"} {
		name := fmt.Sprint("web-", i)
		must(t, a.Deploy(t.Context(), name, first, 6))
		until(t, a, clustertest.RolledOut(name, first, 6))
		_, err := a.Scale(t.Context(), name, 0)
		must(t, err)
		left := 4
		if i > 0 {
			left = 6 // the first Deployment has used up the room of the hour
		}
		held := r.awaitHeld(t, name, left)
		if i == 0 && (held.Writes[0].Limit != "pods" || !strings.Contains(held.Writes[0].Message, "2 writes within 1h0m0s")) {
			t.Errorf("millrace held lists %+v, want the limit pods with \"2 writes within 1h0m0s\"", held)
		}
		if got := s.podsOf(t, name); got != left {
			t.Errorf("%d pods of %s are left, want %d", got, name, left)
		}
		out, err := r.ask(t, verb, "rs/"+held.Object.Name, "--kubeconfig="+s.Kubeconfig(clustertest.Admin), "--because=ticket 4711")
		must(t, err)
		if !strings.Contains(out, "pods of replicasets.apps:held/"+held.Object.Name) {
			t.Errorf("millrace %s prints %q, want the pods of the held ReplicaSet", verb, out)
		}
		if verb == "approve" {
			within(t, patience, "all pods to go", func() string {
				if n := s.podsOf(t, name); n > 0 {
					return fmt.Sprintf("%d are left", n)
				}
				return ""
			})
			continue
		}
		within(t, patience, "the denial on record", func() string {
			if h := r.awaitHeld(t, name, left); !h.Writes[0].Denied || !strings.HasPrefix(h.Writes[0].Message, "denied by ") || !strings.HasSuffix(h.Writes[0].Message, ": ticket 4711") {
				return fmt.Sprintf("held is %+v", h)
			}
			return ""
		})
		if why, err := r.ask(t, "why-not", "rs/"+held.Object.Name); err != nil || !strings.Contains(why, "ticket 4711") {
			t.Errorf("why-not prints %q, %v; want the reason of the denial, \"ticket 4711\"", why, err)
		}
		if got := s.podsOf(t, name); got != left {
			t.Errorf("%d pods of %s are left after the denial, want as many as before", got, name)
		}
		if _, err := r.ask(t, "approve", "rs/"+held.Object.Name, "--kubeconfig="+s.Kubeconfig(clustertest.Admin), "--limit=claims"); err == nil || !strings.Contains(err.Error(), `the limit "claims" holds none of them; those that do: pods`) {
			t.Errorf("approve --limit=claims: %v, want an error that names the limit that holds the writes", err)
		}
		_, err = a.Scale(t.Context(), name, 6) // the mistake is undone
		must(t, err)
		until(t, a, clustertest.RolledOut(name, first, 6))
	}
}

// podsOf counts the pods of a Deployment of the namespace held that are not being deleted.
func (s *site) podsOf(t *testing.T, deployment string) (n int) {
	t.Helper()
	pods, err := s.kube.CoreV1().Pods("held").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, deployment+"-") && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// awaitHeld waits until so many writes of a Deployment's ReplicaSet are held, and returns them.
func (r asker) awaitHeld(t *testing.T, deployment string, writes int) (found standing.Held) {
	t.Helper()
	within(t, patience, "held writes of "+deployment, func() string {
		var held []standing.Held
		r.json(t, &held, "held")
		for _, h := range held {
			if strings.HasPrefix(h.Key.Name, deployment+"-") && h.Writes[0].Writes == writes && time.Since(h.At) < time.Minute {
				found = h
				return ""
			}
		}
		return fmt.Sprintf("held are %+v", held)
	})
	return found
}
