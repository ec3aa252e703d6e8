package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// metric is one number.
type metric struct {
	Name  string
	Unit  string
	Value float64
}

func seconds(name string, d time.Duration) metric { return metric{name, "s", d.Seconds()} }

func milliseconds(name string, d time.Duration) metric {
	return metric{name, "ms", float64(d) / float64(time.Millisecond)}
}

func (m metric) format() string { return number(m.Value) + " " + m.Unit }

// number formats three digits, which is more than such measurements are worth.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// medians are the medians over rounds with the same metrics.
func medians(rounds [][]metric) []metric {
	middle := slices.Clone(rounds[0])
	for i := range middle {
		var values []float64
		for _, round := range rounds {
			values = append(values, round[i].Value)
		}
		middle[i].Value = quantile(values, 0.5)
	}
	return middle
}

// quantile is the smallest of the values that is not below the given share of them.
func quantile[T cmp.Ordered](values []T, share float64) T {
	sorted := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// results are the numbers of a run, in the format of the JSON file.
type results struct {
	When    time.Time `json:"when"`
	Machine string    `json:"machine"`
	Work    sizes     `json:"work"`
	Rows    []row     `json:"rows"`
}

// row is one metric of all contenders that have it.
type row struct {
	Scenario string             `json:"scenario"`
	Name     string             `json:"name"`
	Unit     string             `json:"unit"`
	Values   map[string]float64 `json:"values"`
	// Turns are the numbers of each turn, of which Values has the median; nil if there was only one turn.
	Turns map[string][]float64 `json:"turns,omitempty"`
}

func newResults(work sizes) results {
	return results{When: time.Now().UTC().Truncate(time.Second), Machine: machine(), Work: work}
}

// machine describes the machine on which the numbers were measured.
func machine() string {
	model := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d processors (%s), %s", runtime.NumCPU(), model, runtime.GOOS)
}

// median is the middle one of the values.
func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// add adds a number, or the number of a later turn.
func (r *results) add(scenario, contender string, m metric) {
	at := slices.IndexFunc(r.Rows, func(w row) bool { return w.Scenario == scenario && w.Name == m.Name })
	if at < 0 {
		at = len(r.Rows)
		r.Rows = append(r.Rows, row{Scenario: scenario, Name: m.Name, Unit: m.Unit, Values: map[string]float64{}})
	}
	w := &r.Rows[at]
	if before, again := w.Values[contender]; again {
		if w.Turns == nil {
			w.Turns = map[string][]float64{}
		}
		if w.Turns[contender] == nil {
			w.Turns[contender] = []float64{before}
		}
		w.Turns[contender] = append(w.Turns[contender], m.Value)
		m.Value = quantile(w.Turns[contender], 0.5)
	}
	w.Values[contender] = m.Value
}

// ratio compares two contenders; below 1, a needs less than b.
func (w row) ratio(a, b string) string {
	x, okA := w.Values[a]
	y, okB := w.Values[b]
	if !okA || !okB || y == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", x/y)
}

func (w row) value(contender string) string {
	v, ok := w.Values[contender]
	if !ok {
		return "-"
	}
	return number(v)
}

// cells are the lines of the table; the first is its head. Rows keep the order of the scenarios, independent
// of the order of the contenders.
func (r *results) cells() [][]string {
	table := [][]string{{"scenario", "what", "unit", "kcm", "kcm-tuned", "millrace", "millrace/kcm", "millrace/tuned"}}
	compared := slices.ContainsFunc(r.Rows, func(w row) bool { _, played := w.Values[earlier]; return played })
	if compared {
		table[0] = append(table[0], earlier, "millrace/earlier")
	}
	for _, s := range scenarioNames() {
		for _, w := range r.Rows {
			if w.Scenario != s {
				continue
			}
			line := []string{w.Scenario, w.Name, w.Unit, w.value("kcm"), w.value("kcm-tuned"), w.value("millrace"),
				w.ratio("millrace", "kcm"), w.ratio("millrace", "kcm-tuned")}
			if compared {
				line = append(line, w.value(earlier), w.ratio("millrace", earlier))
			}
			table = append(table, line)
		}
	}
	return table
}

func (r *results) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %s\n\n", r.When.Format(time.RFC3339), r.Machine)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range r.cells() {
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	_ = table.Flush()
}

// load reads the numbers of an earlier run from a file, except those that are measured now: of these
// contenders in these scenarios.
func (r *results) load(file string, contenders, scenarios []string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read earlier results: %w", err)
	}
	var earlier results
	if err := json.Unmarshal(data, &earlier); err != nil {
		return fmt.Errorf("read earlier results: %w", err)
	}
	if earlier.Work != r.Work || earlier.Machine != r.Machine {
		return fmt.Errorf("read earlier results: %s is of other work or of another machine", file)
	}
	for _, w := range earlier.Rows {
		if slices.Contains(scenarios, w.Scenario) {
			for _, name := range contenders {
				delete(w.Values, name)
				delete(w.Turns, name)
			}
		}
		if len(w.Values) > 0 {
			r.Rows = append(r.Rows, w)
		}
	}
	return nil
}

func (r *results) save(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make directory of the results: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// document writes docs/benchmarks.md.
func (r *results) document(file string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, pageHead, r.When.Format("2 January 2006"), r.Machine, r.Work.Rounds, r.Work.Burst, r.Work.Deployments, r.Work.Heals, r.Work.Kills,
		r.Work.Pods, r.Work.Pods/perNamespace, r.Work.Rest, r.Work.Completions, r.Work.Ordered, r.Work.Held, r.Work.Claims, r.Work.Requests, r.Work.Pods, r.Work.Past, r.Work.Scales, longer*r.Work.Past)
	for i, line := range r.cells() {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintln(&b, "|"+strings.Repeat(" --- |", len(line)))
		}
	}
	r.turnByTurn(&b)
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// turnByTurn prints the number of every turn if contenders took turns.
func (r *results) turnByTurn(w io.Writer) {
	headed := false
	for _, row := range r.Rows {
		tuned, ours := row.Turns["kcm-tuned"], row.Turns["millrace"]
		if len(tuned) != len(ours) || len(ours) == 0 || row.Unit != "s" {
			continue
		}
		if !headed {
			fmt.Fprint(w, turnsHead)
			headed = true
		}
		var ratios []string
		for turn := range ours {
			ratios = append(ratios, fmt.Sprintf("%.2fx", ours[turn]/tuned[turn]))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", row.Scenario, row.Name, numbers(tuned), numbers(ours), strings.Join(ratios, ", "))
	}
}

func numbers(values []float64) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, number(v))
	}
	return strings.Join(texts, ", ")
}

const turnsHead = `
## Turn by turn

In these rows kcm-tuned and Millrace were measured several times, in turns (` + "`--turns`" + `), each time on a fresh control plane. The table above
has the medians; this one has the seconds of each turn.

| scenario | what | kcm-tuned | millrace | millrace/tuned |
| --- | --- | --- | --- | --- |
`

const pageHead = `# Benchmarks

Written by ` + "`make bench`" + ` (` + "`go run ./cmd/bench --doc=docs/benchmarks.md`" + `); do not edit.
Measured on %s on %s.

**Contenders.** kcm is kube-controller-manager with its defaults. kcm-tuned is the same program with ` + "`--kube-api-qps=5000 --kube-api-burst=10000`" + `
and 50 workers for each controller. Millrace is built as its image is (` + "`make release`" + `).
Each contender runs alone, on a fresh control plane on this machine: etcd in memory, one API server, one scheduler and ten simulated nodes.
All contenders run the same controllers: five, where the scenario names no others.

**Measurements.** The benchmark observes the cluster through its own watch and uses its own clock. A ratio below 1 means that Millrace needs less.
For burst, many, job, statefulset (until all are ready) and namespace, the table has the median of %d rounds, each in a new namespace.
The rows about the API server count what it did for all of its clients during the round.
All rows of one scenario come from one run. Different scenarios may come from different runs, and the speed of a shared machine may change by half from day to day.

| scenario | what is done |
| --- | --- |
| wall | the benchmark itself creates Pods, without a controller: how many per second this API server accepts |
| burst | one Deployment of %d replicas is created, then deleted |
| many | %d Deployments of 5 replicas are created as fast as possible |
| heal | one Pod of 20 is deleted: the time until its replacement exists, %d times |
| usage | processor time since the start, and the sum of the processes' peak memory, after the three scenarios above |
| kill | two processes of each service run; the active one is killed and a Pod is deleted: the time until its replacement exists, %d times for each service; Millrace runs its services as separate processes |
| rest | %d Pods in %d namespaces, 20 of one Deployment in each, which no scheduler places: what the processes use once the controllers have nothing to do, and what they write in %d s (Leases, Nodes and Events are not counted). From this scenario to namespace, eight controllers run: those of Jobs, StatefulSets and namespaces, too |
| job | a Job of %d completions, a tenth of them at a time, each of which runs for 0.3 s; then the Job is deleted |
| statefulset | a StatefulSet of %d ordered Pods; then it is scaled to 0 |
| namespace | a namespace with %d objects, half of them Pods, is deleted: the time until it is gone |
| claims | %d claims, and as many volumes, each of which fits every claim: the time until all claims are bound. From this scenario to ranges, the controllers of volumes, certificates, devices and node ranges run, too, and the processor time is the contender's, for the work and for cleaning up |
| attachments | as many Pods, placed on ten nodes, each with a volume of a CSI driver: the time until all volumes are attached, and, after the Pods are deleted, until all are detached; the benchmark acts as the driver's attacher |
| certificates | %d requests of kubelets for client certificates: the time until all are approved and signed |
| devices | as many Pods that name a ResourceClaimTemplate: the time until all claims exist and the status of each Pod names its claim |
| ranges | as many nodes are registered: the time until each has a range of Pod addresses |
| restart | the processes are killed with %d Pods in the cluster, a Pod is deleted, and the processes are started: the time from the start until the replacement exists (kcm runs without leader election, because it would wait for its own old Lease) |
| history | restart with %d messages of history in the streams of pods, turns and outcomes; half of them are about objects that no longer exist. Three cases: the one process was stopped; it was killed, so that the NATS server reads all messages again; the services were stopped as separate processes, and the bus kept running. The median of 3 starts |
| tracing | a Deployment is scaled by one, %d times by 20 users at a time: without traces, with 1 %% and with 100 %% of the traces recorded, in short alternating rounds. Each round is compared with the round without traces next to it; the table has the median and the quartiles of these comparisons. Every trace is checked against the record |
| record, long-record | the questions of "millrace history", "why" and "get --at" about the history of history and long-history, 20 times each, without a cluster; long-record is measured only when it is named |
| replay | "millrace replay" decides a record again, from the bus and from a file: 40,000 turns with one change each, and 400,000 changes with one turn per thousand. The table has the rate of the second replay, when the memory is warm, and the processor time of the replay and the NATS server together. Each decision must be the same as the recorded one |
| verify | a notary signs the second record of replay, and "millrace verify" checks it: messages per second, and the size of the signatures |
| long-history | history with %d messages; measured only when it is named |

`
