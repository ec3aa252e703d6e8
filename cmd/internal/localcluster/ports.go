package localcluster

import "github.com/millrace/millrace/pkg/events/stream/port"

// ports are the programs' ports, all on 127.0.0.1, except for the kubelets' and the metrics
// server's with [Options].E2E.
type ports struct {
	Etcd, EtcdPeer, APIServer, Scheduler, Kwok, Kubelet, Metrics, Storage int
	Jaeger, JaegerGRPC, JaegerHealth, OTLP, OTLPHTTP                      int
}

func (p *ports) all() []*int {
	return []*int{
		&p.Etcd, &p.EtcdPeer, &p.APIServer, &p.Scheduler, &p.Kwok, &p.Kubelet, &p.Metrics, &p.Storage,
		&p.Jaeger, &p.JaegerGRPC, &p.JaegerHealth, &p.OTLP, &p.OTLPHTTP,
	}
}

// freePorts chooses a free port for every program.
func freePorts() (p ports, err error) {
	for _, one := range p.all() {
		if *one, err = FreePort(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

// FreePort is a port of 127.0.0.1 that no process uses, reserved until this process ends; see
// package port.
func FreePort() (int, error) { return port.Free() }
