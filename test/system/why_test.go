package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

// TestWhatHappenedAndWhy runs the life of a Deployment, and then asks the commands about it.
func TestWhatHappenedAndWhy(t *testing.T) {
	s := here(t)
	m := s.run(t, "--kinds=*")
	r := asker{site: s, nats: m.nats, namespace: "told"}
	a := s.arena(t, "told")
	began := time.Now()
	must(t, a.Deploy(t.Context(), "web", first, 2))
	until(t, a, clustertest.RolledOut("web", first, 2))
	created := time.Now()
	_, err := a.Scale(t.Context(), "web", 4)
	must(t, err)
	until(t, a, clustertest.RolledOut("web", first, 4))
	scaled := time.Now()
	pods := a.Created()
	victim, err := a.DeletePod(t.Context())
	must(t, err)
	until(t, a, clustertest.Replaced(pods, 4))
	must(t, a.SetImage(t.Context(), "web", second))
	until(t, a, clustertest.RolledOut("web", second, 4))

	t.Run("history", func(t *testing.T) { toldHistory(t, r, victim) })
	t.Run("get", func(t *testing.T) { toldState(t, r, created, scaled) })
	t.Run("diff", func(t *testing.T) {
		var d struct {
			Changes []struct {
				Path    string
				Was, Is any
			}
		}
		r.json(t, &d, "diff", "deploy/web", "--from="+stamp(created), "--to="+stamp(scaled))
		if !slices.ContainsFunc(d.Changes, func(c struct {
			Path    string
			Was, Is any
		}) bool {
			return c.Path == "spec.replicas" && c.Was == 2.0 && c.Is == 4.0
		}) {
			t.Errorf("millrace diff prints the changes %+v, want spec.replicas from 2 to 4 among them", d.Changes)
		}
	})
	t.Run("why", func(t *testing.T) { toldCauses(t, r, scaled) })
	t.Run("secrets", func(t *testing.T) { toldNoSecrets(t, r) })
	clear(t, a)
	t.Run("gone", func(t *testing.T) { toldEnd(t, r) })
	t.Run("clear errors", func(t *testing.T) { toldErrors(t, r, began) })
}

// asker runs the commands.
type asker struct {
	*site
	nats, namespace string
}

func stamp(t time.Time) string { return t.Format(time.RFC3339Nano) }

// ask runs a command and returns its output; the error has its messages.
func (r asker) ask(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.binary, append(slices.Clip(args), "--nats-url=nats://"+r.nats, "--namespace="+r.namespace, "--timeout="+patience.String())...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = errors.New(string(exit.Stderr))
	}
	return string(out), err
}

func (r asker) json(t *testing.T, into any, args ...string) {
	t.Helper()
	out, err := r.ask(t, append(args, "--output=json")...)
	if err != nil {
		t.Fatalf("millrace %s: %v", strings.Join(args, " "), err)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("millrace %s: %v in\n%s", strings.Join(args, " "), err, out)
	}
}

// awaitLook waits until a controller has decided about an object in its recorded state.
func (r asker) awaitLook(t *testing.T, object, controller string) {
	t.Helper()
	within(t, patience, controller+" has looked at "+object, func() string {
		var now standing.Standing
		out, err := r.ask(t, "why-not", object, "--controller="+controller, "--output=json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &now)
		}
		switch {
		case err != nil:
			return err.Error() // the kind may have no log yet
		case now.Object == nil || now.Looked == nil:
			return "it is not on record"
		case now.Looked.Answered < now.Looked.Position:
			return fmt.Sprintf("of %d it has answered %d", now.Looked.Position, now.Looked.Answered)
		}
		return ""
	})
}

func toldHistory(t *testing.T, r asker, victim string) {
	var h record.History
	r.json(t, &h, "history", "deploy/web", "--limit=0")
	if first := h.Versions[0]; first.Event != record.Created || first.By.Manager == "" || len(h.Gaps) > 0 {
		t.Errorf("the history begins with %+v and has the gaps %v; want the creation by a manager, and no gap", first, h.Gaps)
	}
	wanted := map[string]bool{"replicas": false, "image": false} // the ends of the paths
	ours := 0
	for _, v := range h.Versions {
		for _, c := range v.Changes {
			if strings.HasPrefix(c.Path, "spec.") && v.By.Controller == "" {
				wanted[c.Path[strings.LastIndex(c.Path, ".")+1:]] = true
			}
		}
		if v.By.Controller == "deployment-controller" && v.By.Because != "" {
			ours++
		}
	}
	for path, found := range wanted {
		if !found {
			t.Errorf("the history has no change of %s by a user", path)
		}
	}
	if ours == 0 {
		t.Error("the history has no version that the controller wrote")
	}
	within(t, patience, "the end of the pod is on record", func() string { // no earlier step has waited for that
		r.json(t, &h, "history", "pod/"+victim, "--limit=0")
		if end := h.Versions[len(h.Versions)-1]; end.Event != record.Ended {
			return fmt.Sprintf("it ends with %+v", end)
		}
		return ""
	})
	if created, end := h.Versions[0], h.Versions[len(h.Versions)-1]; created.By.Controller != "replicaset-controller" || end.Event != record.Ended {
		t.Errorf("the pod's history begins with %+v and ends with %+v; want the create by replicaset-controller, and the deletion", created, end)
	}
	text, err := r.ask(t, "history", "deploy/web")
	if must(t, err); !strings.Contains(text, "~ spec.replicas: 2 -> 4") || strings.Contains(text, "\x1b") {
		t.Errorf("millrace history prints\n%s\nwant \"~ spec.replicas: 2 -> 4\", and no colours", text)
	}
}

func toldState(t *testing.T, r asker, created, scaled time.Time) {
	type list struct {
		Whole bool
		Items []struct {
			Metadata metav1.ObjectMeta
			Spec     struct{ Replicas int }
		}
	}
	for when, want := range map[time.Time]int{created: 2, scaled: 4} {
		var pods, set list
		r.json(t, &pods, "get", "pods", "--at="+stamp(when))
		if len(pods.Items) != want || !pods.Whole {
			t.Errorf("millrace get --at=%v prints %d pods, whole: %v; want %d, whole", when, len(pods.Items), pods.Whole, want)
		}
		r.json(t, &set, "get", "deploy", "--at="+stamp(when))
		if len(set.Items) != 1 || set.Items[0].Spec.Replicas != want {
			t.Errorf("millrace get --at=%v prints the deployments %+v, want one with as many replicas as pods", when, set.Items)
		}
		version := set.Items[0].Metadata.ResourceVersion
		var one struct{ Metadata metav1.ObjectMeta }
		r.json(t, &one, "get", "deploy/web", "--at="+version)
		if one.Metadata.ResourceVersion != version {
			t.Errorf("millrace get --at=%s prints a deployment of another version: %+v", version, one)
		}
	}
}

func toldCauses(t *testing.T, r asker, scaled time.Time) {
	pods, err := r.kube.CoreV1().Pods(r.namespace).List(t.Context(), everything)
	must(t, err)
	var c record.Cause
	r.json(t, &c, "why", "pod/"+pods.Items[0].Name, "--field=spec.containers")
	if c.Decision == nil || c.Decision.Controller != "replicaset-controller" || c.Decision.AuditID == "" {
		t.Fatalf("the cause of the pod is %+v, want a decision of replicaset-controller with its audit ID", c)
	}
	began := c.Began()
	if began.Version.Object.Kind != "deployments.apps" || began.Version.By.Controller != "" || !strings.Contains(changed(began), "image") {
		t.Errorf("the chain of causes of the pod begins with %+v, want a user's change of the Deployment's image", began.Version)
	}
	var then struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	r.json(t, &then, "get", "pods", "--at="+stamp(scaled))
	followed := 0
	for _, item := range then.Items {
		var c record.Cause
		r.json(t, &c, "why", "pod/"+item.Metadata.Name, "--at="+stamp(scaled), "--field=spec.containers")
		if c.Decision == nil {
			t.Errorf("the cause of the pod %s is %+v, want a decision", item.Metadata.Name, c.Version)
			continue
		}
		if strings.Contains(changed(c.Began()), "spec.replicas") {
			followed++
		}
	}
	if followed != 2 {
		t.Errorf("the causes of %d pods lead to the scaling, want 2", followed)
	}
	var stands standing.Standing
	r.json(t, &stands, "why-not", "deploy/web", "--controller=deployment-controller")
	if stands.Object == nil || stands.Looked == nil || len(stands.Turns) == 0 || stands.Turns[0].Because == "" {
		t.Errorf("why-not prints %+v; want the object, the last look at it, and the last turn with its reason", stands)
	}
}

func changed(c *record.Cause) string {
	var paths []string
	for _, change := range c.Version.Changes {
		paths = append(paths, change.Path)
	}
	return strings.Join(paths, " ")
}

// toldNoSecrets searches for the value of a Secret in all output about it.
func toldNoSecrets(t *testing.T, r asker) {
	const canary = "canary-3Kd8-never-shown"
	secrets := r.kube.CoreV1().Secrets(r.namespace)
	made, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "canary", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"p":"` + canary + `"}}`}},
		StringData: map[string]string{"p": canary},
	}, metav1.CreateOptions{})
	must(t, err)
	within(t, patience, "the secret is on record", func() string {
		_, err := r.ask(t, "get", "secret", "canary")
		return ask(err)
	})
	next := made.DeepCopy()
	next.StringData = map[string]string{"p": canary + "2"}
	newer, err := secrets.Update(t.Context(), next, metav1.UpdateOptions{})
	must(t, err)
	within(t, patience, "the secret's change is on record", func() string {
		told, err := r.ask(t, "get", "secret", "canary", "-o", "json")
		if err == nil && !strings.Contains(told, `"`+newer.ResourceVersion+`"`) {
			return told
		}
		return ask(err)
	})
	for _, args := range [][]string{
		{"get", "secret", "canary", "-o", "yaml"}, {"get", "secrets", "-o", "json"}, {"history", "secret/canary", "-o", "json"}, {"history", "secret/canary"},
		{"why", "secret/canary", "-o", "yaml"}, {"diff", "secret/canary", "--from=" + made.ResourceVersion, "-o", "json"},
	} {
		out, err := r.ask(t, args...)
		if err != nil || !strings.Contains(out, "canary") {
			t.Errorf("millrace %s: %v, %s", strings.Join(args, " "), err, out)
		}
		if strings.Contains(out, "3Kd8") || strings.Contains(out, "Y2FuYXJ5LTNLZDg") { // also in base64
			t.Errorf("millrace %s shows the value of a secret", strings.Join(args, " "))
		}
	}
}

// toldEnd asks about an object that has been deleted.
func toldEnd(t *testing.T, r asker) {
	var c record.Cause
	within(t, patience, "the end is on record", func() string {
		r.json(t, &c, "why", "deploy/web")
		if c.Version.Event != record.Ended {
			return string(c.Version.Event)
		}
		return ""
	})
	var lags []standing.Lag
	r.json(t, &lags, "lag", "--all")
	if len(lags) == 0 {
		t.Error("millrace lag --all lists no stream and no consumer")
	}
	var parked []standing.Parked
	if r.json(t, &parked, "parked"); len(parked) > 0 {
		t.Errorf("millrace parked lists %+v, want no key", parked)
	}
}

func toldErrors(t *testing.T, r asker, began time.Time) {
	for args, want := range map[string]string{
		"get pods --at=" + stamp(began.Add(-24*time.Hour)):      "before the record of pods begins",
		"get pods --at=" + stamp(time.Now().Add(time.Hour)):     "is to come",
		"get pods --at=yesterday":                               "is no moment",
		"get nonsense":                                          "the record has no kind",
		"history pod/absent":                                    "not on record",
		"history pod":                                           "write KIND/NAME",
		"why-not deploy/web --controller=nonsense":              "is not in the list of known controllers",
		"diff deploy/web":                                       "--from is missing",
		"get deploy/web":                                        "is gone since",
		"tail --kind=pods --nats-url=nats://127.0.0.1:1 -o xml": "is none of table, json",
	} {
		if out, err := r.ask(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("millrace %s: %v, want %q; %s", args, err, want, out)
		}
	}
	r.nats = "127.0.0.1:1"
	if _, err := r.ask(t, "get", "pods"); err == nil || !strings.Contains(err.Error(), "no bus answers at nats://127.0.0.1:1") {
		t.Errorf("millrace get without a bus: %v, want \"no bus answers at nats://127.0.0.1:1\"", err)
	}
}
