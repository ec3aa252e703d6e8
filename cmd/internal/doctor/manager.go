package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// The Lease of kube-controller-manager, and the label of its pods in kubeadm's manifests.
const (
	managerNamespace, managerLease = "kube-system", "kube-controller-manager"
	managerLabel                   = "component=kube-controller-manager"
	managerProgram                 = "kube-controller-manager"
)

// Lease is an observation of a Lease, by one or two reads.
type Lease struct {
	// Err is why it cannot be read.
	Err error
	// Holder is the holder; empty: none.
	Holder string
	// Renewed is the time of the last renewal, by the holder's clock, and For the lease duration.
	Renewed time.Time
	For     time.Duration
	// Again: the holder renewed it between two reads.
	Again bool
}

// held is whether the Lease has a live holder at a time of another clock.
func (l Lease) held(now time.Time) bool {
	return l.Holder != "" && (l.Again || now.Sub(l.Renewed) <= l.For)
}

// leaseOf is the observation of a Lease.
func leaseOf(have []coordinationv1.Lease) (l Lease) {
	if len(have) == 0 {
		return l
	}
	spec := have[0].Spec
	if spec.HolderIdentity != nil {
		l.Holder = *spec.HolderIdentity
	}
	if spec.RenewTime != nil {
		l.Renewed = spec.RenewTime.Time
	}
	if spec.LeaseDurationSeconds != nil {
		l.For = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	return l
}

// Managers is the observation of other controller managers.
type Managers struct {
	Lease Lease
	// Now is the API server's time.
	Now time.Time
	// Pods are the command lines of those that run as pods; PodsErr is why they cannot be read.
	Pods    [][]string
	PodsErr error
}

// commandsOf are the command lines of kube-controller-manager in running pods.
func commandsOf(pods []corev1.Pod) (all [][]string) {
	for _, p := range pods {
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range p.Spec.Containers {
			line := slices.Concat(c.Command, c.Args)
			if slices.ContainsFunc(line, func(word string) bool { return word == managerProgram || strings.HasSuffix(word, "/"+managerProgram) }) {
				all = append(all, line)
			}
		}
	}
	return all
}

// flagOf are the values of a flag on a command line.
func flagOf(line []string, name string) (values []string) {
	for i, word := range line {
		word = strings.ReplaceAll(word, "_", "-")
		switch {
		case strings.HasPrefix(word, "--"+name+"="):
			_, value, _ := strings.Cut(line[i], "=")
			values = append(values, value)
		case word == "--"+name && i+1 < len(line) && !strings.HasPrefix(line[i+1], "--"):
			values = append(values, line[i+1])
		case word == "--"+name:
			values = append(values, "true")
		}
	}
	return values
}

// runs are the controllers of the catalogue that a kube-controller-manager with that command line
// runs.
//
// Upstream: k8s.io/controller-manager/app, IsControllerEnabled.
func runs(line []string) (names []string) {
	list := []string{"*"}
	if given := flagOf(line, "controllers"); len(given) > 0 {
		list = strings.Split(strings.Join(given, ","), ",")
	}
	for _, e := range controllers.Catalog() {
		if e.Exists() && able(line, e) && enabled(list, e) {
			names = append(names, e.Name)
		}
	}
	return names
}

// enabled is whether a list enables a controller: the first mention of it decides.
func enabled(list []string, e controllers.Entry) bool {
	star := false
	for _, item := range list {
		item = strings.TrimSpace(item)
		name, off := strings.CutPrefix(item, "-")
		if name == e.Name || slices.Contains(e.Aliases, name) {
			return !off
		}
		star = star || item == "*"
	}
	return star && !e.Off
}

// able is whether a command line has the flags that a controller needs.
//
// Upstream: cmd/kube-controller-manager/app: the root certificate is the kubeconfig's where no
// flag names one.
func able(line []string, e controllers.Entry) bool {
	if e.Needs == "root-ca-file" || len(controllers.Lacking([]string{e.Name}, controllers.Config{})) == 0 {
		return true
	}
	if family, of, signs := strings.Cut(e.Needs, "signing-"); signs { // each signer has a flag of its own, too
		return slices.ContainsFunc(line, func(word string) bool {
			name, _, _ := strings.Cut(word, "=")
			return strings.HasPrefix(name, "--"+family+"signing-") && strings.HasSuffix(name, of)
		})
	}
	return slices.ContainsFunc(flagOf(line, e.Needs), func(value string) bool { return value != "" && value != "false" })
}

// Finding checks whether another controller manager runs the same controllers. acting are the
// controllers that act in this process. waits is the flag by which this process acts only while it
// holds a Lease that kube-controller-manager stands for, too; "" if there is none.
func (m Managers) Finding(acting []string, waits string) Finding {
	held := m.Lease.held(m.Now)
	switch {
	case len(acting) == 0:
		return found(CheckManager, OK, "no controller acts here: kube-controller-manager may run all of them")
	case m.Lease.Err != nil && len(m.Pods) == 0:
		return found(CheckManager, NotChecked, "the Lease %s/%s cannot be read (%v), so that nothing tells whether a kube-controller-manager is active", managerNamespace, managerLease, m.Lease.Err)
	case !held && len(m.Pods) == 0 && m.Lease.Holder != "":
		return found(CheckManager, OK, "no kube-controller-manager is active: %s has not renewed the Lease %s/%s since %s", m.Lease.Holder, managerNamespace, managerLease, m.Lease.Renewed.UTC().Format(time.RFC3339))
	case !held && len(m.Pods) == 0:
		return found(CheckManager, OK, "no kube-controller-manager is active: nothing holds the Lease %s/%s", managerNamespace, managerLease)
	case waits != "" && held:
		return found(CheckManager, OK, "%s holds the Lease %s/%s, and this process waits for its turn (%s)", m.Lease.Holder, managerNamespace, managerLease, waits)
	}
	return m.beside(acting, held)
}

// beside is the finding if a kube-controller-manager is active.
func (m Managers) beside(acting []string, held bool) Finding {
	who := "a pod of it runs"
	if held {
		who = m.Lease.Holder + " renews its Lease"
	}
	if len(m.Pods) == 0 {
		why := "it is no pod that can be seen"
		if m.PodsErr != nil {
			why = m.PodsErr.Error()
		}
		return found(CheckManager, Warning, "kube-controller-manager is active (%s), and its flags cannot be read (%s): what it does not leave out of these is run twice: %s", who, why, some(acting)).
			so("start it with %s, or only look on here (--shadow='*')", without(acting))
	}
	var twice []string
	for _, line := range m.Pods {
		for _, name := range runs(line) {
			if slices.Contains(acting, name) && !slices.Contains(twice, name) {
				twice = append(twice, name)
			}
		}
	}
	if len(twice) == 0 {
		return found(CheckManager, OK, "kube-controller-manager is active (%s), and leaves to Millrace what runs here", who)
	}
	slices.Sort(twice)
	return found(CheckManager, Failed, "kube-controller-manager is active (%s), and %d controllers are run twice: %s", who, len(twice), some(twice)).
		so("start it with %s besides what it leaves out now, or leave them out here (--controllers), or only look on (--shadow)", without(twice))
}

// without is the flag that excludes controllers.
func without(names []string) string {
	return fmt.Sprintf("--controllers='*,-%s'", strings.Join(names, ",-"))
}
