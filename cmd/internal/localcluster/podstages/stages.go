// Package podstages has the behaviour of simulated pods: when a pod starts, is ready, ends, fails
// and is removed, as stages of kwok's configuration. The template that they fill is
// manifests/stages.yaml of package localcluster.
package podstages

import "fmt"

// The behaviour of a simulated pod follows from its spec: kwok evaluates these jq expressions,
// which tell from the command and image how the pod would end on a real node.
const (
	command = `.spec.containers[0] | ((.command // []) + (.args // [])) | join(" ")`
	images  = `[.spec.containers[].image] | join(" ")`

	// Readiness that a test turns on through exec, or that is delayed: fakelet implements it.
	probed = `[.spec.containers[] | ((.readinessProbe.exec.command // [] | join(" ") | test("/data/|/bin/false|^false|exit 1")) or ((.readinessProbe.initialDelaySeconds // 0) >= 5))] | any`
	// An image that cannot be pulled.
	unpullable = `[.spec.containers[].image] | any(test("404|nonexist|non-exist|does-not-exist|invalid-image"))`
	hostPort   = `[.spec.containers[].ports[]?.hostPort // 0] | any(. > 0)`

	endsWell   = `(` + images + `) as $images | ` + command + ` | (test("exit 0") and (test("exit 1") | not)) or test("^(/bin/)?(true|echo |date|sleep [0-9]( |$))") or ((. == "") and ($images | test("busybox")))`
	remembers  = command + ` | test("/data/foo")` // fakelet simulates these
	byIndex    = command + ` | test("JOB_COMPLETION_INDEX} % 2")`
	oddIndex   = `.metadata.annotations["batch.kubernetes.io/job-completion-index"] // "0" | tonumber % 2 == 1`
	byChance   = command + ` | test("RANDOM")`
	trapsTerm  = command + ` | test("trap [^ ]+ SIGTERM")`
	hasEnded   = `(.status.phase == "Failed" or .status.phase == "Succeeded")`
	isReleased = hasEnded + ` or ((.metadata.finalizers // []) | length == 0)`
)

// match is one condition of a stage: an expression and the value it must have.
type match struct{ Key, Value string }

func is(expression string) match  { return match{expression + " | tostring", "true"} }
func not(expression string) match { return match{expression + " | tostring", "false"} }

// start is a stage in which a pod starts to run.
type start struct {
	Name  string
	Ready bool
	Delay int // milliseconds
	Match []match
}

// ending is a stage in which a pod ends.
type ending struct {
	Name, Phase, Reason string
	Code, Weight, Delay int
	Deleted             bool // applies only to pods that are being deleted; false: only to others
	Match               []match
}

// removal is a stage in which a deleted pod is removed.
type removal struct {
	Name  string
	Delay int
	Match []match
}

// Times of the simulated pods, in milliseconds.
const (
	runsFor      = 300
	endsAfter    = 1000
	endsSlowly   = 5000 // it traps the signal and sleeps
	portTakenFor = 2000 // so that fakelet can refuse a host port that is taken, on a busy machine, too
)

func starts() []start {
	return []start{
		{"pod-ready", true, 0, []match{not(`(` + hostPort + `)`), not(`(` + probed + `) or (` + unpullable + `)`)}},
		{"pod-ready-host-port", true, portTakenFor, []match{is(`(` + hostPort + `)`), not(`(` + probed + `) or (` + unpullable + `)`)}},
		{"pod-running-not-ready", false, 0, []match{is(`(` + probed + `)`)}},
	}
}

func endings() []ending {
	never := match{".spec.restartPolicy", "Never"}
	all := []ending{
		{Name: "pod-exit-0", Phase: "Succeeded", Reason: "Completed", Weight: 1, Delay: runsFor, Match: []match{not(remembers), not(`.spec.restartPolicy == "Always"`), is(endsWell)}},
		{Name: "pod-odd-fails", Phase: "Failed", Reason: "Error", Code: 1, Weight: 1, Delay: runsFor, Match: []match{not(remembers), is(byIndex), is(oddIndex)}},
		{Name: "pod-even-succeeds", Phase: "Succeeded", Reason: "Completed", Weight: 1, Delay: runsFor, Match: []match{not(remembers), is(byIndex), not(oddIndex)}},
		{Name: "pod-random-ok", Phase: "Succeeded", Reason: "Completed", Weight: 1, Delay: runsFor, Match: []match{is(byChance)}},
		{Name: "pod-random-fails", Phase: "Failed", Reason: "Error", Code: 1, Weight: 1, Delay: runsFor, Match: []match{is(byChance), never}},
		{Name: "pod-terminated", Phase: "Failed", Reason: "Error", Code: 137, Delay: endsAfter, Deleted: true, Match: []match{not(trapsTerm)}},
		{Name: "pod-terminated-slowly", Phase: "Failed", Reason: "Error", Code: 137, Delay: endsSlowly, Deleted: true, Match: []match{is(trapsTerm)}},
	}
	for _, code := range []int{1, 2, 3, 42} {
		fails := fmt.Sprintf(`%s | ((test("exit %d( |;|$)") and (test("exit 0") | not)) or (%d == 1 and test("^(/bin/)?false")))`, command, code, code)
		all = append(all, ending{
			Name: fmt.Sprintf("pod-exit-%d", code), Phase: "Failed", Reason: "Error", Code: code, Weight: 1, Delay: runsFor,
			Match: []match{not(remembers), never, is(fails)},
		})
	}
	return all
}

func removals() []removal {
	return []removal{
		{"pod-delete-ended", 0, []match{is(hasEnded), is(isReleased)}},
		{"pod-delete", endsAfter, []match{not(hasEnded), is(isReleased)}},
	}
}

// Stages is the data for the template of kwok's configuration.
type Stages struct {
	Starts     []start
	Unpullable match
	Endings    []ending
	Removals   []removal
}

// All are the stages of every pod.
func All() Stages {
	return Stages{Starts: starts(), Unpullable: is("(" + unpullable + ")"), Endings: endings(), Removals: removals()}
}
