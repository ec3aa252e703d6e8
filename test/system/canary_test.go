package system

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The planted values, each a text of its own. No object has the values that a webhook quotes: only its
// messages have them.
const (
	ofSecret, copyOfSecret       = "secret-data", "secret-copy"
	ofConfig, packedInConfig     = "config-data", "config-binary"
	copyOfConfig                 = "config-copy"
	ofCustom, copyOfCustom       = "custom-spec", "custom-copy"
	ofPod                        = "pod-environment"
	copyOfDeployment             = "deployment-copy"
	quotedOfConfig, quotedOfPod  = "quoted-of-configmaps", "quoted-of-pods"
	quotedOfCustom, quotedOfSets = "quoted-of-customs", "quoted-of-replicasets"
)

var planted = []string{
	ofSecret, copyOfSecret, ofConfig, packedInConfig, copyOfConfig, ofCustom, copyOfCustom, ofPod, copyOfDeployment,
	quotedOfConfig, quotedOfPod, quotedOfCustom, quotedOfSets,
}

// The places that are searched besides streams; a stream's place is its name.
const (
	inExport, inPage, inSpans, inMetrics, inLog, inEvents = "the export", "the page", "the spans", "the metrics", "the log", "Kubernetes Events"
)

// mayTell lists where a value may appear, and why. It must appear in the marked places, which shows that the
// search works there. All other values must appear nowhere.
var mayTell = map[string]map[string]string{
	copyOfDeployment: {
		"EV_deployments_apps":        "the controller writes the object back as a whole, with its status",
		"TURN_deployment-controller": "the status that it writes has the object around it",
		inExport:                     "it has these streams",
		inPage:                       "it shows what is recorded",
	},
	quotedOfSets: {
		"OUTCOME_deployment-controller": "nothing of ReplicaSets is hidden, so that users see why a write was refused",
		"TURN_deployment-controller":    "it is in the condition ReplicaFailure",
		"EV_deployments_apps":           "likewise",
		"EV_events":                     "it is in the Event FailedCreate",
		inExport:                        "it has these streams",
		inPage:                          "it shows what is recorded",
		inLog:                           "a turn that did not succeed has a line",
		inEvents:                        "as with kube-controller-manager",
		inSpans:                         "the reason that the webhook gave is the type of the error",
	},
}

// certain are the places in which a value appears whenever mayTell allows it.
var certain = map[string][]string{
	copyOfDeployment: {"EV_deployments_apps", inExport, inPage},
	quotedOfSets:     {"OUTCOME_deployment-controller", inExport, inPage, inLog, inEvents},
}

// canaries are the values, by their names.
type canaries map[string]string

func plant() canaries {
	all := canaries{}
	for _, name := range planted {
		all[name] = "canary-" + strings.ToLower(rand.Text())
	}
	return all
}

// forms are the encodings of a value: as it is (no escape changes it), in base64 at every offset of the
// encoded text, and in hexadecimal.
func forms(value string) [][]byte {
	all := [][]byte{[]byte(value), []byte(hex.EncodeToString([]byte(value)))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", shift) + value))
		all = append(all, []byte(text[(shift*8+5)/6:len(text)-2]))
	}
	return all
}

// places are the texts that were written to each place.
type places map[string][]byte

// found returns the places that have a value, sorted.
func (p places) found(value string) (all []string) {
	for place, text := range p {
		if slices.ContainsFunc(forms(value), func(form []byte) bool { return bytes.Contains(text, form) }) {
			all = append(all, place)
		}
	}
	slices.Sort(all)
	return all
}

// TestNothingConfidentialIsTold: with every kind of the cluster on record, and refusals that quote values,
// each value appears only where the table allows it.
func TestNothingConfidentialIsTold(t *testing.T) {
	s, values := here(t), plant()
	spans := collect(t)
	s.defineVaults(t)
	s.refuse(t, values)
	m := s.run(t, "--kinds=*", "-v=10", "--profiling", "--tracing-endpoint="+spans.URL, "--tracing-protocol=http/protobuf",
		"--redact=pods:.spec.containers[*].env[*].value")
	s.plant(t, m, values)
	s.refused(t, m)

	searched := s.places(t, m)
	searched[inSpans] = spans.bytes()
	if !bytes.Contains(searched[inSpans], []byte(canaryArena)) || !bytes.Contains(searched[inMetrics], []byte("millrace_writer_results_total")) {
		t.Errorf("the spans or the metrics have nothing of namespace %s, so nothing was searched in them", canaryArena)
	}
	for name, value := range values {
		found := searched.found(value)
		for _, place := range found {
			if mayTell[name][place] == "" {
				t.Errorf("the value of %s is in %s, which may not have it: %s", name, place, around(searched[place], value))
			}
		}
		for _, place := range certain[name] {
			if !slices.Contains(found, place) {
				t.Errorf("the value of %s is not found in %s, which has it: this search would find nothing at all", name, place)
			}
		}
	}
	m.stop(t)

	// If the rule is off, the search finds the values, in every encoding.
	m = s.run(t, "--redact=configmaps:")
	within(t, patience, "the ConfigMap is recorded", func() string {
		if len(read(t, connect(t, m.nats), "EV_configmaps")) == 0 {
			return "there is no log"
		}
		return ""
	})
	searched = s.places(t, m)
	for _, name := range []string{ofConfig, packedInConfig} {
		if found := searched.found(values[name]); !slices.Equal(found, []string{"EV_configmaps", inExport, inPage}) {
			t.Errorf("without a rule for ConfigMaps the value of %s is found in %v, want their log, the export and the page", name, found)
		}
	}
	s.clearCanaries(t)
}

// around is the text around a found value.
func around(text []byte, value string) string {
	for _, form := range forms(value) {
		if at := bytes.Index(text, form); at >= 0 {
			return fmt.Sprintf("%q", text[max(0, at-200):min(len(text), at+200)])
		}
	}
	return ""
}

// refused waits until each refusal has an outcome.
func (s *site) refused(t *testing.T, m *together) {
	t.Helper()
	b := connect(t, m.nats)
	missing := map[string]bool{}
	for _, want := range []string{"configmaps 403", "pods 403", "replicasets.apps 403", "vaults." + churn + " 403", "vaults." + churn + " 422"} {
		missing[want] = true
	}
	within(t, patience, "everything is refused that is to be", func() string {
		for _, controller := range running() {
			for _, message := range read(t, b, subject.OutcomeStream(controller)) {
				var o events.Outcome
				must(t, json.Unmarshal(message.Data, &o))
				for _, r := range o.Results {
					delete(missing, fmt.Sprintf("%s %d", r.Ref.Kind, r.Code))
				}
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
	})
	within(t, patience, "an Event says so of the kind without rules", func() string {
		list, err := s.kube.CoreV1().Events(canaryArena).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Deployment,reason=ReplicaSetCreateError"})
		if err != nil || len(list.Items) == 0 {
			return fmt.Sprintf("there is none (%v)", err)
		}
		return ""
	})
}

// places collects everything that a running Millrace has written.
func (s *site) places(t *testing.T, m *together) places {
	t.Helper()
	all := inStreams(t, m)
	file := filepath.Join(t.TempDir(), "record.millrace")
	r := asker{site: s, nats: m.nats, namespace: canaryArena}
	if out, err := r.ask(t, "export", file); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	all[inExport] = exported(t, file)
	all[inPage] = s.page(t, m)
	code, text := m.get(t, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("GET /metrics is answered %d, want 200", code)
	}
	all[inMetrics] = []byte(text)
	lines, err := os.ReadFile(m.Log)
	must(t, err)
	all[inLog] = lines
	list, err := s.kube.CoreV1().Events("").List(t.Context(), everything)
	must(t, err)
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.Source.Component == "" })
	all[inEvents], err = json.Marshal(list)
	must(t, err)
	return all
}

// inStreams is the content of all streams of the server, with headers and subjects. It finds the streams on
// the server's disk.
func inStreams(t *testing.T, m *together) places {
	t.Helper()
	b, all := connect(t, m.nats), places{}
	dirs, err := filepath.Glob(filepath.Join(m.dataDir, "*", "*", "streams", "*"))
	must(t, err)
	more, err := filepath.Glob(filepath.Join(m.dataDir, "*", "*", "*", "streams", "*"))
	must(t, err)
	for _, dir := range append(dirs, more...) {
		name := filepath.Base(dir)
		all[name] = written(read(t, b, name))
	}
	if len(all["EV_pods"]) == 0 || len(all["TURN_deployment-controller"]) == 0 {
		t.Fatalf("the data directory %s has the streams %v, want EV_pods and TURN_deployment-controller, both with messages", m.dataDir, slices.Sorted(maps.Keys(all)))
	}
	return all
}

func written(messages []events.Message) []byte {
	var text bytes.Buffer
	for _, message := range messages {
		fmt.Fprintln(&text, message.Subject, message.Header)
		text.Write(message.Data)
	}
	return text.Bytes()
}

// exported is the unpacked content of a file, and the file itself.
func exported(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	from, err := archive.Open(file)
	must(t, err)
	defer from.Close()
	for _, stream := range from.Streams() {
		must(t, from.Read(t.Context(), bus.Passage{Stream: stream.Name}, func(batch []events.Message) error {
			text = append(text, written(batch)...)
			return nil
		}))
	}
	return text
}

// shown are the objects that the test opens in the web page.
var shown = map[kinds.Name][]string{
	"secrets": {"keys"}, "configmaps": {"settings"}, "pods": {"lone"}, "deployments.apps": {"open"}, "replicasets.apps": {"hidden"},
	kinds.Name("vaults." + churn): {"kept", "lost"},
}
