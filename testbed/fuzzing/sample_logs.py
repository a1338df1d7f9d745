"""Short logs of every program whose logs `tandem report` reads, to be damaged."""

from __future__ import annotations

_MARIAN = """[2022-03-04 05:00:00] [marian] Running on gamma as process 77 with command line:
[2022-03-04 05:00:00] [config] after-batches: 9000
[2022-03-04 05:00:00] [config] devices:
[2022-03-04 05:00:00] [config]   - 0
[2022-03-04 05:00:00] [config] learn-rate: 0.0002
[2022-03-04 05:00:00] [config] lr-decay-inv-sqrt:
[2022-03-04 05:00:00] [config]   - 400
[2022-03-04 05:00:00] [config] train-sets:
[2022-03-04 05:00:00] [config]   - text/all.bpe.et
[2022-03-04 05:00:03] [data] Done shuffling 1,234 sentences (cached in RAM)
[2022-03-04 05:01:00] Ep. 1 : Up. 100 : Sen. 6,400 : Cost 6.5 * 90,000 after 90,000 : Time 55.00s : 1600.00 words/s
[2022-03-04 05:01:50] Ep. 1 : Up. 200 : Sen. 12,800 : Cost 6.0 * 90,000 after 180,000 : Time 50.00s : L.r. 2.0000e-04
[2022-03-04 05:01:55] [valid] Ep. 1 : Up. 200 : cross-entropy : 140.25 : new best
[2022-03-04 05:02:00] [valid] Ep. 1 : Up. 200 : perplexity : 400.5 : new best
[2022-03-04 05:02:10] [valid] Ep. 1 : Up. 200 : bleu-detok : 3.25 : new best
[2022-03-04 05:03:00] Ep. 1 : Up. 300 : Sen. 19,200 : Cost 5.5 * 90,000 after 270,000 : Time 70.00s : L.r. 2.0000e-04
[2022-03-04 05:04:10] [valid] Ep. 2 : Up. 400 : perplexity : 300.5 : stalled 1 times (last best: 140.25)
[2022-03-04 05:04:10] [valid] Ep. 2 : Up. 400 : bleu-detok : 7.5 : new best
[2022-03-04 05:05:00] Training finished
"""
_FAIRSEQ = """2021-02-03 04:00:00 | INFO | fairseq_cli.train | {'common': {'fp16': False}, \
'optimization': {'max_update': 900, 'lr': [0.001]}, 'lr_scheduler': {'_name': 'inverse_sqrt'}}
Namespace(arch='transformer', distributed_world_size=3, fp16=True, lr=[0.001], max_update=900, warmup_updates=100)
| data-bin train pl-cs 4321 examples
2021-02-03 04:00:00 | INFO | fairseq_cli.train | num. shared model params: 5,000,000 (num. trained: 5,000,000)
2021-02-03 04:00:00 | INFO | fairseq_cli.train | training on 3 devices (GPUs/TPUs)
2021-02-03 04:00:50 | INFO | train_inner | epoch 001:     50 / 100 loss=9.0, nll_loss=8.0, ppl=256, wps=400, \
ups=2, wpb=200, bsz=5, num_updates=50, lr=0.0005, gnorm=1.5, train_wall=25, wall=30
2021-02-03 04:01:15 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "9", "num_updates": "99"}
2021-02-03 04:01:20 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.5 | nll_loss 6.5 | ppl 90.51 \
| bleu 12.5 | wps 900 | num_updates 100 | best_bleu 12.5
2021-02-03 04:01:50 | INFO | train_inner | epoch 002:     50 / 100 loss=7.0, nll_loss=6.0, ppl=64, wps=100, \
ups=0.5, wpb=200, bsz=5, num_updates=150, lr=0.0009, gnorm=1.5, train_wall=25, wall=95
"""
_JOEYNMT = """2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.data.src.lang : nl
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.training.learning_rate : 0.0004
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.training.scheduling : plateau
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.training.updates : 900
2023-05-01 10:00:01,000 - INFO - joeynmt.model - Total params: 7654321
2023-05-01 10:01:00,000 - INFO - joeynmt.training - Epoch   1, Step:       50, Batch Loss:     3.9, Lr: 0.000400
2023-05-01 10:01:25,000 - INFO - joeynmt.training - Epoch   1, Step:      100, Batch Loss:     3.1, Lr: 0.000400
2023-05-01 10:01:39,000 - INFO - joeynmt.prediction - Generation took 14.5[sec].
2023-05-01 10:01:40,000 - INFO - joeynmt.metrics - nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.0.0
2023-05-01 10:01:40,000 - INFO - joeynmt.prediction - Evaluation result (greedy): bleu:   1.50, ppl:  20.00, 0.5[sec]
2023-05-01 10:02:05,000 - INFO - joeynmt.training - Epoch   1, Step:      150, Batch Loss:     2.7, Lr: 0.000400
"""
_VALIDATIONS = """Steps: 100\tloss: 3.00000\tacc: 0.2\tppl: 20.00000\tbleu: 1.50000\tLR: 0.00040000\t*
Steps: 200\tloss: 2.50000\tacc: 0.3\tppl: 12.00000\tbleu: 9.25000\tLR: 0.00020000\t
Steps: 300\tLoss: 71234.50000\tPPL: 12.00000\tbleu: 9.25000\tLR: 0.00020000\t
"""
_OPENSEQ2SEQ = """*** Using horovod
*** Starting training from scratch
*** Training config:
{'batch_size_per_gpu': 128,
 'data_layer': <class 'open_seq2seq.data.text2text.text2text.ParallelTextDataLayer'>,
 'data_layer_params': {'max_length': 50, 'source_file': '/text/news.clean.fi.tok'},
 'dtype': 'mixed',
 'lr_policy': <function transformer_policy at 0x7f00>,
 'lr_policy_params': {'d_model': 256, 'learning_rate': 1.5, 'warmup_steps': 400},
 'max_steps': 5000,
 'num_gpus': 1,
 'print_loss_steps': 10,
 'use_horovod': True}
*** Evaluation config:
{'batch_size_per_gpu': 8}
*** Building graph in Horovod rank: 1
*** Total trainable parameters: 1200000
name: Some GPU 9000 major: 7 minor: 0 memoryClockRate(GHz): 1.0
*** Global step 0: ***     Train loss: 9.0000
time per step = 0:00:2.001
*** Running evaluation on a validation set:
***     Validation loss: 5.5
***     Eval BLUE score: 0.2
*** Global step 10: ***     Train loss: 8.0000
time per step = 0:00:2.101
*** Global step 20: ***     Train loss: 7.0000
time per step = 0:00:2.101
***     Validation loss: 5.0
***     Eval BLUE score: 0.25
*** Finished training
*** Avg time per step: 2.000s
"""
_MPIRUN = """ssh: Could not resolve hostname gamma: Name or service not known
ORTE was unable to reliably start one or more daemons.
  node:   al_pha
beta: Permission denied (publickey).
ssh: connect to host delta port 22: Connection refused
python: can't open file 'run.py': [Errno 2] No such file or directory
mpirun noticed that process rank 0 with PID 77 on node alpha exited on signal 9 (Killed).
  Exit code:    1
"""
_TABLE = """step,epoch,train_loss,eval_loss,eval_bleu,learning_rate,seconds
1,0.5,9.5,,,1e-4,1.5
2,1,9.0,8.5,0.5,2e-4,1.5
3,1.5,8.0,,,3e-4,1.25
4,2,"7,5",8.0,1.25,4e-4,nan
"""
_OPENNMT = """[2024-01-02 03:00:00,000 INFO] Parsed 2 corpora from -data.
[2024-01-02 03:00:05,000 INFO] Step 50/ 400; acc: 20.1; ppl: 900.50; xent: 6.80; \
lr: 0.00010; sents: 3200; bsz: 3500/3300/40; 9000/8500 tok/s; 20 sec;
[2024-01-02 03:00:25,000 INFO] Step 100/ 400; acc: 30.2; ppl: 300.20; xent: 5.70; \
lr: 0.00020; sents: 3200; bsz: 3500/3300/40; 9000/8500 tok/s; 40 sec;
[2024-01-02 03:00:30,000 INFO] valid stats calculation
[2024-01-02 03:00:30,500 INFO] Train perplexity: 500.1
[2024-01-02 03:00:30,500 INFO] Validation perplexity: 250.3
[2024-01-02 03:00:30,500 INFO] Validation accuracy: 33.1
"""
_SOCKEYE = """1\ttime-elapsed=30.5\tupdates=100\tepoch=0\tlearning-rate=0.0002\tperplexity-train=300.5\
\tperplexity-val=250.1\tbleu-val=0.031
2\ttime-elapsed=60.5\tupdates=200\tepoch=1\tlearning-rate=0.0002\tperplexity-train=200.5\
\tperplexity-val=150.1\tbleu-val=0.101
"""
_TRAINER_STATE = """{"global_step": 40, "log_history": [
{"epoch": 1.0, "grad_norm": 1.5, "learning_rate": 5e-05, "loss": 2.5, "step": 20},
{"epoch": 1.0, "eval_bleu": 7.5, "eval_loss": 2.25, "eval_runtime": 2.0, "step": 20},
{"epoch": 2.0, "loss": 2.0, "step": 40}, {"epoch": 2.0, "train_runtime": 250.0, "step": 40}], "max_steps": 40}
"""
_CURVE = "Wall time,Step,Value\n1700000000.5,100,6.5\n1700000050.5,200,5.5\n1700000100.5,300,5.0\n"
_HISTORY = """{"_step": 10, "_runtime": 20.0, "_timestamp": 1700000020.0, \
"train/loss": 3.5, "train/learning_rate": 0.001}
{"_step": 20, "_runtime": 40.0, "_timestamp": 1700000040.0, "eval/loss": 3.0, "eval/bleu": 4.5}
"""
LOGS = {
    "marian": _MARIAN,
    "fairseq": _FAIRSEQ,
    "joeynmt": _JOEYNMT,
    "joeynmt-validations": _VALIDATIONS,
    "openseq2seq": _OPENSEQ2SEQ,
    "mpirun": _MPIRUN,
    "table": _TABLE,
    "opennmt": _OPENNMT,
    "sockeye": _SOCKEYE,
    "trainer-state": _TRAINER_STATE,
    # TensorBoard names such a file after its curve.
    "train_loss": _CURVE,
    "wandb": _HISTORY,
}
"""Texts by the name of the format."""
