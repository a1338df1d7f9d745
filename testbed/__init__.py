"""What tests and benches share: hosts in network namespaces, GPU counts on the rehearsal device, published speeds."""
