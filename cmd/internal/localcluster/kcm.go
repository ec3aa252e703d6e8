package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// AllControllers is every controller of kube-controller-manager, including those that are
// off by default.
const AllControllers = "*," + bootstrapSigner + "," + tokenCleaner + "," + selinuxWarning

// The controllers that "*" does not include.
const (
	bootstrapSigner = "bootstrap-signer-controller"
	tokenCleaner    = "token-cleaner-controller"
	selinuxWarning  = "selinux-warning-controller"
)

// KCM are the options of one kube-controller-manager.
type KCM struct {
	// Controllers is its --controllers flag; empty: AllControllers.
	Controllers string
	// Tuned lifts its limit on requests and gives each controller 50 workers.
	Tuned bool
	// Args are further flags.
	Args []string
}

// Without is a value for --controllers with every controller except some. In
// kube-controller-manager's syntax the first mention of a controller counts.
func Without(controllers ...string) string {
	list := slices.DeleteFunc(strings.Split(AllControllers, ","), func(name string) bool { return slices.Contains(controllers, name) })
	return strings.Join(append([]string{strings.Join(list, ",")}, controllers...), ",-")
}

// StartKCM starts the n-th kube-controller-manager and waits until it answers.
// If there are several, they elect a leader.
func (c *Cluster) StartKCM(ctx context.Context, n int, kcm KCM) (*subprocess.Process, error) {
	if err := c.Programs.Build(ctx, "kube-controller-manager"); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	program := c.Programs.Path("kube-controller-manager")
	controllers, err := c.known(ctx, program, cmp.Or(kcm.Controllers, AllControllers))
	if err != nil {
		return nil, err
	}
	args := append(c.kcmArgs(port, controllers), kcm.Args...)
	if kcm.Tuned {
		tuning, err := kcmTuning(ctx, program)
		if err != nil {
			return nil, err
		}
		args = append(args, tuning...)
	}
	p, err := c.Run(fmt.Sprintf("kube-controller-manager-%d", n), program, args...)
	if err != nil {
		return nil, err
	}
	return p, p.Ready(ctx, fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
}

func (c *Cluster) kcmArgs(port int, controllers string) []string {
	kubeconfig := c.Kubeconfig(ControllerManager)
	return []string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + c.key("ca.crt"), "--requestheader-client-ca-file=" + c.key("front-proxy-ca.crt"),
		"--root-ca-file=" + c.RootCAFile(), "--service-account-private-key-file=" + c.ServiceAccountKeyFile(),
		"--cluster-signing-cert-file=" + c.RootCAFile(), "--cluster-signing-key-file=" + c.RootCAKeyFile(),
		"--use-service-account-credentials=true", "--controllers=" + controllers,
		"--allocate-node-cidrs=true", "--cluster-cidr=" + PodCIDR, "--node-cidr-mask-size=22",
		"--service-cluster-ip-range=" + ServiceCIDR, "--cluster-name=kubernetes",
	}
}

// everyController matches the names of the controllers in the program's help.
var everyController = regexp.MustCompile(`All controllers: ([a-z, -]+) Disabled-by-default`)

// known leaves out of a value for --controllers what an older kube-controller-manager does not have,
// and would refuse.
func (c *Cluster) known(ctx context.Context, program, controllers string) (string, error) {
	if !c.Programs.OtherKubernetes() {
		return controllers, nil
	}
	help, err := exec.CommandContext(ctx, program, "--help").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask kube-controller-manager for its controllers: %w", err)
	}
	all := everyController.FindStringSubmatch(strings.Join(strings.Fields(string(help)), " "))
	if all == nil {
		return "", errors.New("ask kube-controller-manager for its controllers: its help does not name them")
	}
	has := append(strings.Split(all[1], ", "), "*")
	list := slices.DeleteFunc(strings.Split(controllers, ","), func(item string) bool {
		return !slices.Contains(has, strings.TrimPrefix(strings.TrimSpace(item), "-"))
	})
	return strings.Join(list, ","), nil
}

// AwaitLeader waits until a kube-controller-manager leads and renews its Lease, because
// an earlier one may have left the Lease behind.
func (c *Cluster) AwaitLeader(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, subprocess.ReadyDeadline)
	defer cancel()
	begun := time.Now()
	for {
		lease, err := client.CoordinationV1().Leases("kube-system").Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		if err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(begun) {
			return nil
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for a leading kube-controller-manager: %w", ctx.Err())
		}
	}
}

// concurrency matches the flags for the number of a controller's workers in the program's
// help, so that new controllers of later versions are tuned too.
var concurrency = regexp.MustCompile(`--(?:[a-z]+-)*concurrent-[a-z-]+`)

func kcmTuning(ctx context.Context, program string) ([]string, error) {
	help, err := exec.CommandContext(ctx, program, "--help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ask kube-controller-manager for its flags: %w", err)
	}
	args := []string{"--kube-api-qps=5000", "--kube-api-burst=10000"}
	names := concurrency.FindAllString(string(help), -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !strings.Contains(name, "max") { // a flag with max bounds something else
			args = append(args, name+"=50")
		}
	}
	return args, nil
}
