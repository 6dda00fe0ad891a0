#!/bin/sh
# What every interface may have; the last one of each kind is up without an address.
ip address add 10.77.0.200/24 dev eth0
ip address add 10.77.9.1/16 broadcast 10.77.255.255 label eth0:one dev eth0
ip address add 169.254.3.4/16 broadcast + dev eth0
ip address add fd77::99/48 dev eth0 nodad
ip link add br7 type bridge
ip link set br7 up
ip address add 10.99.0.1/23 broadcast + dev br7
ip address add 10.99.8.1/30 dev br7
ip link add dev veth7 type veth peer name veth8
ip link set veth7 up
ip link set veth8 up
ip address add 10.98.0.1 peer 10.98.0.2/32 dev veth7
ip address add fd98::1 peer fd98::2/128 dev veth7 nodad
ip tuntap add dev tun7 mode tun
ip link set tun7 up
ip address add 10.97.0.1 peer 10.97.0.2/32 dev tun7
ip address add fd97::1/7 dev tun7 nodad
ip link add bare7 type bridge
ip route add default via 10.77.0.2 metric 300
ip route add default via 10.78.0.2 metric 200
ip route add 10.50.0.0/16 via 10.77.0.3
ip -6 route add default via fd77::2 metric 300
ip -6 route add default via fd78::2 metric 400
