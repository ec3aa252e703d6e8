package process

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// addressOptions are the flags for the address of health and metrics.
type addressOptions struct {
	health string
	// bind and port are kube-controller-manager's flags. If one of them is set, they replace health.
	bind net.IP
	port int
	// Flags are those to which the options were added; nil before that.
	Flags *pflag.FlagSet
}

func newAddressOptions() addressOptions {
	return addressOptions{health: "127.0.0.1:10260", bind: net.IPv4zero, port: 10257}
}

func (o *addressOptions) add(f *pflag.FlagSet, usage string) {
	o.Flags = f
	f.StringVar(&o.health, "health-address", o.health, usage)
	f.IPVar(&o.bind, "bind-address", o.bind, "IP `address` on which --secure-port is served, by HTTPS only, instead of --health-address")
	f.IntVar(&o.port, "secure-port", o.port, "`port` of --bind-address, HTTPS only, instead of --health-address; 0 turns it off")
}

// Given is whether a flag of the process was set: on the command line, in the environment or in --config.
func (o *addressOptions) Given(name string) bool { return o.Flags != nil && o.Flags.Changed(name) }

// Address is where to serve, and whether by HTTPS only. Empty serves nothing.
//
// Errors: the port is out of range; the address is given twice.
//
// Upstream: k8s.io/apiserver/pkg/server/options, SecureServingOptions.
func (o *addressOptions) Address() (address string, secure bool, err error) {
	bound, ported := o.Given("bind-address"), o.Given("secure-port")
	switch {
	case !bound && !ported:
		return o.health, false, nil
	case o.Given("health-address"):
		return "", false, errors.New("read --health-address: --bind-address and --secure-port say where to serve, too; take one or the other out")
	case o.port < 0 || o.port > 65535:
		return "", false, fmt.Errorf("read --secure-port: %d must be between 0 and 65535, inclusive. 0 for turning off secure port", o.port)
	case o.port == 0:
		return "", true, nil
	}
	return net.JoinHostPort(o.bind.String(), strconv.Itoa(o.port)), true, nil
}
